import { open } from 'node:fs/promises'
import { openFailures } from '../adapters/failures.ts'
import type { Logs } from '../adapters/logger.ts'
import type { Reads } from '../db/pools.ts'
import { type Head, headsAfter, lastHeadIn } from '../events/seals/seals.ts'

/** Whether the file can be written to: by its name in `GET /ready`. */
type HeadFileReadiness = { readonly sealFile: { readonly ok: boolean; readonly reason?: string } }

/** The file of LOG_SEAL_FILE. */
export type HeadFile = {
  /** Appends the heads that it lacks. Rejects where the database fails; what is wrong with the file is told and kept. */
  catchUp(stopping: AbortSignal): Promise<void>
  readiness(): HeadFileReadiness
}

/**
 * A file that heads are appended to, one a line, with the time at which they were. Its last line says where to go on, so heads that
 * were made while it could not be written to follow as soon as it can.
 */
export function openHeadFile({ db, log }: Reads & Logs, path: string): HeadFile {
  const failures = openFailures({ log }, 'LOG_SEAL_FILE cannot be appended to: heads wait until it can', { path })
  let kept: Head | undefined
  let reason: string | undefined
  const failed = (error: unknown): void => {
    failures.failed(error)
    reason = (error as NodeJS.ErrnoException).code ?? 'unknown'
  }
  return {
    catchUp: async (stopping) => {
      try {
        // Makes the file where there is none: that shows whether it can be written to. One that was moved away goes on in the new one.
        kept = (await withFile(path, 'a+', lastHead)) ?? kept
      } catch (error) {
        return failed(error)
      }
      while (!stopping.aborted) {
        const heads = await headsAfter(db, kept)
        if (heads.length === 0) break
        try {
          await append(path, heads)
        } catch (error) {
          return failed(error)
        }
        kept = heads.at(-1)
      }
      failures.worked()
      reason = undefined
    },
    readiness: () => ({ sealFile: reason === undefined ? { ok: true } : { ok: false, reason } }),
  }
}

/** The last whole head in a file; undefined where there is no file, too. */
export async function lastHeadOf(path: string): Promise<Head | undefined> {
  try {
    return await withFile(path, 'r', lastHead)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}

type File = Awaited<ReturnType<typeof open>>

async function withFile<T>(path: string, flags: 'r' | 'a+', work: (file: File) => Promise<T>): Promise<T> {
  const file = await open(path, flags, 0o644)
  try {
    return await work(file)
  } finally {
    await file.close()
  }
}

/** A snapshot with many running transactions makes a long line. */
const longestLine = 64 * 1024

async function tailOf(file: File): Promise<string> {
  const { size } = await file.stat()
  const length = Math.min(size, longestLine)
  const { buffer, bytesRead } = await file.read({ position: size - length, buffer: Buffer.alloc(length) })
  return buffer.toString('utf8', 0, bytesRead)
}

const lastHead = async (file: File): Promise<Head | undefined> => lastHeadIn(await tailOf(file))

const append = (path: string, heads: readonly Head[]): Promise<void> =>
  withFile(path, 'a+', async (file) => {
    const tail = await tailOf(file)
    // A line that a crash has cut off stays what it is.
    const separator = tail === '' || tail.endsWith('\n') ? '' : '\n'
    const writtenAt = new Date().toISOString()
    const lines = heads.map((head) => `${JSON.stringify({ ...head, writtenAt })}\n`)
    await file.appendFile(`${separator}${lines.join('')}`)
    await file.sync()
  })
