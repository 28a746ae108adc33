import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'
import { atEnd } from './postgres.ts'

/** What is lost of the next exchange that has a word in it, with the connection. */
export type Lost =
  /** The server gets the message, acts on it and answers; the answer is lost. */
  | 'answer'
  /** The server never gets it, and hears that its client is gone. */
  | 'message'
  /** The server never gets it, and goes on waiting for it. */
  | 'message, unnoticed'

/** A line to PostgreSQL that loses things. */
export type DatabaseLine = {
  /** The address of the same database through it. */
  readonly url: string
  /** Loses something of the next exchange whose message has the word in it. */
  lose(word: string, what: Lost): Loss
  /**
   * Lets nothing through any more, in neither direction and without a word, on the open connections of programs whose name
   * matches. Gives their number.
   */
  swallow(program?: RegExp): number
  /** The same, and on all that are opened from now on, until called without a name. */
  keepSwallowing(program?: RegExp): void
  /** Holds back, on every connection, what the server sends after an error, until the answer is called. */
  holdAfterErrors(): () => void
  /** On how many connections something is held back. */
  holding(): number
}

export type Loss = { readonly happened: boolean }

type Exchange = { word: string; what: Lost; happened: boolean }
type Pair = { readonly client: Socket; readonly server: Socket; program: string; swallowed: boolean }

/** Opens one; it is closed after the test file. */
export async function openDatabaseLine(url: string): Promise<DatabaseLine> {
  const target = new URL(url)
  const pairs = new Set<Pair>()
  let next: Exchange | undefined
  let swallowing: RegExp | undefined
  let held: Map<Socket, Buffer[]> | undefined
  const give = (client: Socket, chunk: Buffer) => {
    const waiting = held?.get(client)
    if (waiting !== undefined) return void waiting.push(chunk)
    const end = held === undefined ? -1 : endOfError(chunk)
    if (end < 0) return void client.write(chunk)
    client.write(chunk.subarray(0, end))
    held!.set(client, [chunk.subarray(end)])
  }
  const listener = createServer((client) => {
    const server = connect(Number(target.port), target.hostname)
    const pair: Pair = { client, server, program: '', swallowed: false }
    pairs.add(pair)
    const end = () => {
      if (pair.swallowed) return
      pairs.delete(pair)
      client.destroy()
      server.destroy()
    }
    for (const socket of [client, server]) socket.on('error', end).on('close', end)
    let loses: Lost | undefined
    client.on('data', (chunk) => {
      pair.program ||= /application_name\0([^\0]*)/.exec(chunk.toString('latin1'))?.[1] ?? ''
      if (swallowing?.test(pair.program)) pair.swallowed = true
      if (pair.swallowed) return
      if (next !== undefined && !next.happened && chunk.includes(next.word)) {
        next.happened = true
        loses = next.what
      }
      if (loses === 'message, unnoticed') {
        pair.swallowed = true
        client.resetAndDestroy()
      } else if (loses === 'message') end()
      else server.write(chunk)
    })
    server.on('data', (chunk) => {
      if (pair.swallowed) return
      if (loses === undefined) return give(client, chunk)
      client.resetAndDestroy()
      end()
    })
  })
  await once(listener.listen(0, '127.0.0.1'), 'listening')
  atEnd(async () => {
    for (const { client, server } of pairs) for (const socket of [client, server]) socket.destroy()
    await new Promise((resolve) => listener.close(resolve))
  })
  const address = new URL(url)
  address.hostname = '127.0.0.1'
  address.port = String((listener.address() as { port: number }).port)
  const swallow = (program = /./) => {
    const chosen = [...pairs].filter((pair) => !pair.swallowed && program.test(pair.program))
    for (const pair of chosen) pair.swallowed = true
    return chosen.length
  }
  return {
    url: address.href,
    lose: (word, what) => {
      next = { word, what, happened: false }
      return next
    },
    swallow,
    keepSwallowing: (program) => {
      swallowing = program
      if (program !== undefined) swallow(program)
    },
    holding: () => held?.size ?? 0,
    holdAfterErrors: () => {
      held = new Map()
      return () => {
        const waiting = held ?? new Map<Socket, Buffer[]>()
        held = undefined
        for (const [client, chunks] of waiting) client.write(Buffer.concat(chunks))
      }
    },
  }
}

/** Where the first error among these messages ends; -1 where there is none. */
function endOfError(messages: Buffer): number {
  for (let at = 0; at + 5 <= messages.length; ) {
    const end = at + 1 + messages.readInt32BE(at + 1)
    if (messages[at] === 'E'.charCodeAt(0)) return end
    at = end
  }
  return -1
}
