import { io, type Socket } from 'socket.io-client'
import { afterAll } from 'vitest'
import { waitFor } from './wait.ts'

export type Frame = {
  name: string
  action: string
  collection: string
  data: any
  timestamp: string
  cursor: string
  position: string
}

export type TestSocket = {
  readonly socket: Socket
  /** Everything received, in order. */
  readonly frames: Frame[]
  /** What the server said of the connection: `connected`, `resync`, `unsubscribed`. */
  readonly notices: { name: string; body: any }[]
  subscribe(collection: string, since?: string): Promise<any>
  emit(name: string, body: unknown): Promise<any>
  /** Waits until a frame passes. */
  frame(passes: (frame: Frame) => boolean): Promise<Frame>
  close(): void
}

const open: Socket[] = []

afterAll(closeSockets)

/** Closes all that were opened, for files in which later tests write much. */
export function closeSockets(): void {
  for (const socket of open.splice(0)) socket.close()
}

/** Connects as a browser would; rejects with the server's refusal. */
export async function connect(address: string, token: string | undefined, options: object = {}): Promise<TestSocket> {
  const socket = io(address, {
    path: '/realtime',
    auth: { token },
    transports: ['websocket'],
    reconnection: false,
    forceNew: true,
    ...options,
  })
  open.push(socket)
  const frames: Frame[] = []
  const notices: { name: string; body: any }[] = []
  socket.onAny((name: string, body: any) => {
    if (body?.position !== undefined) frames.push({ name, ...body })
    else notices.push({ name, body })
  })
  await new Promise<void>((resolve, reject) => {
    socket.once('connected', () => resolve())
    socket.once('connect_error', reject)
  })
  const emit = (name: string, body: unknown) => socket.timeout(5000).emitWithAck(name, body)
  return {
    socket,
    frames,
    notices,
    emit,
    subscribe: (collection, since) => emit('subscribe', { collection, ...(since !== undefined && { since }) }),
    frame: async (passes) => (await waitFor(() => frames.find(passes), { what: 'a frame' }))!,
    close: () => socket.close(),
  }
}
