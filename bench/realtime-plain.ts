/** The ceiling of fan-out: a socket.io server that sends the given bytes to all clients when it is told to. */
import { createServer } from 'node:http'
import { Server } from 'socket.io'

const server = createServer()
const io = new Server(server, { path: '/realtime', serveClient: false })
io.on('connection', (socket) => {
  socket.on('go', (message: object, count: number) => {
    for (let i = 0; i < count; i += 1) io.emit('bench_change:create', message)
  })
})
server.listen(0, '127.0.0.1', () => {
  process.stdout.write(`${JSON.stringify({ msg: 'ready', address: [server.address()] })}\n`)
})
