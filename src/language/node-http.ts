/**
 * Node's HTTP, as it was before any import of it: an `import` asks for every member, among them WebSocket, which loads the client of
 * `fetch`. That is 50 ms of processor time and 14 MB in each process, of which most never fetch.
 */
export const { STATUS_CODES, createServer, request } = process.getBuiltinModule('node:http')
