/**
 * What a back end returns of a call that has nothing to wait for: it was handed to a device with queues, in order with all
 * that comes after. Known by identity, so that such a call is spared the promises of one that may still fail.
 */
export const done: Promise<void> = Promise.resolve();
