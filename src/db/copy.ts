import { Readable } from 'node:stream'
import type pg from 'pg'
import { streamOf } from './connection.ts'
import type { PgClient } from './pools.ts'

/*
 * COPY: rows as a stream of bytes, in PostgreSQL's own text form. A statement of it is a query of the client like any other,
 * in its turn, by the interface that `pg` has for such queries (`submit`, `handleCopyData` and so on).
 */

/** The approximate size of the pieces sent to and from the server. */
const pieceSize = 64 * 1024

/** The connection under a client, as far as COPY uses it. */
type Wire = pg.Connection & {
  sendCopyFromChunk(chunk: Uint8Array): void
  endCopyFrom(): void
  sendCopyFail(message: string): void
}

type CommandComplete = { readonly text?: string }

/** `COPY … TO STDOUT`: its rows in pieces, read no faster than they are taken. */
export function copyOut(client: PgClient, statement: string): Readable {
  const socket = streamOf(client)
  let piece = Buffer.allocUnsafe(pieceSize)
  let filled = 0
  const rows = new Readable({
    highWaterMark: 4 * pieceSize,
    read: () => void socket.resume(),
    // The rest must be read all the same, before the next statement.
    destroy: (error, callback) => {
      socket.resume()
      callback(error)
    },
  })
  // An error is told to whoever reads. It may also come before the first read, or after the last one.
  rows.on('error', () => undefined)
  const flush = () => {
    if (filled > 0 && !rows.destroyed && !rows.push(piece.subarray(0, filled))) socket.pause()
    piece = Buffer.allocUnsafe(pieceSize)
    filled = 0
  }
  client.query({
    submit: (wire: Wire) => wire.query(statement),
    handleCopyData: ({ chunk }: { readonly chunk: Uint8Array }) => {
      if (rows.destroyed) return
      if (filled + chunk.length > pieceSize) flush()
      if (chunk.length > pieceSize) {
        if (!rows.push(Buffer.from(chunk))) socket.pause()
        return
      }
      // The parser uses its memory again.
      piece.set(chunk, filled)
      filled += chunk.length
    },
    handleCommandComplete: () => undefined,
    handleReadyForQuery: () => {
      flush()
      if (!rows.destroyed) rows.push(null)
    },
    handleError: (error: Error) => void rows.destroy(error),
    handleRowDescription: () => undefined,
    handleDataRow: () => undefined,
    handleEmptyQuery: () => undefined,
  } as never)
  return rows
}

/**
 * `COPY … FROM STDIN`: sends the content, no faster than the server takes it. Resolves to the number of rows. An error
 * of the content ends the statement and is rethrown.
 */
export function copyIn(client: PgClient, statement: string, content: AsyncIterable<Uint8Array>): Promise<number> {
  const socket = streamOf(client)
  return new Promise((resolve, reject) => {
    let rows = 0
    let failure: unknown
    let isOver = false
    const drained = () =>
      new Promise<void>((go) => {
        const done = () => {
          socket.off('drain', done).off('close', done)
          go()
        }
        socket.once('drain', done).once('close', done)
      })
    const send = async (wire: Wire) => {
      try {
        for await (const piece of content) {
          if (isOver || socket.destroyed) return
          wire.sendCopyFromChunk(piece)
          if (socket.writableNeedDrain) await drained()
        }
        if (!isOver) wire.endCopyFrom()
      } catch (error) {
        failure = error
        if (!isOver) wire.sendCopyFail('its content could not be read')
      }
    }
    client.query({
      submit: (wire: Wire) => wire.query(statement),
      handleCopyInResponse: (wire: Wire) => void send(wire),
      handleCommandComplete: ({ text = '' }: CommandComplete) => {
        rows = Number(/\d+$/.exec(text)?.[0] ?? 0)
      },
      handleReadyForQuery: () => {
        isOver = true
        resolve(rows)
      },
      handleError: (error: Error) => {
        isOver = true
        reject(failure ?? error)
      },
      handleRowDescription: () => undefined,
      handleDataRow: () => undefined,
      handleEmptyQuery: () => undefined,
    } as never)
  })
}
