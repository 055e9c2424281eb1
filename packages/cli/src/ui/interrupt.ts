const handlers = new Set<() => void>();

/** While it is held, Ctrl-C calls `handler` and doesn't end the process; a second Ctrl-C does. */
export function onInterrupt(handler: () => void): Disposable {
  handlers.add(handler);
  return { [Symbol.dispose]: () => void handlers.delete(handler) };
}

/** @returns whether somebody took it */
export function interrupt(): boolean {
  const taken = [...handlers];
  handlers.clear();
  for (const handler of taken) handler();
  return taken.length > 0;
}
