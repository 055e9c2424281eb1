/** Calls back when the event loop had its turn. Pages have no setImmediate. */
export const soon: (callback: () => void) => void =
  typeof setImmediate === "function"
    ? (callback) => void setImmediate(callback)
    : (callback) => void setTimeout(callback);
