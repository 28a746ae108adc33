import { Readable } from 'node:stream'
import { type Accountability, type Requester, requesterFor } from '../features/data/items/items.ts'
import { type AssetRow, contentsOf, fileNotFound, readableAsset, storedAsset } from '../features/files/assets/assets.ts'
import { type Incoming, replaceFile, saveFile } from '../features/files/files/files.ts'
import type { ExtensionWrites } from './capabilities.ts'

/** Content as an extension has it. */
type GivenContent = string | Uint8Array | AsyncIterable<Uint8Array>

/** A file as `POST /files` takes it: its content, its name, and what is said of it. */
type GivenFile = {
  readonly content: GivenContent
  readonly filename: string
  /** As declared; what the first bytes say counts more. */
  readonly type?: string
} & Readonly<Record<string, unknown>>

type StoredFile = {
  readonly id: string
  readonly filename: string
  readonly type: string
  readonly size: number
  /** Its sha256, in hex. */
  readonly hash: string | null
  /** Must be read to its end or destroyed. */
  readonly content: Readable
}

type As = { readonly accountability?: Accountability | null }

/**
 * Files for extensions: what `/files` and `/assets` do, with the same checks. Without `accountability` everything may be
 * done. Deleting a file, and changing what is said of it, is `ItemsService('svc_File')`'s.
 */
export type StorageService = {
  /** Stores a new file; its id. In a before-hook it is part of the change: refused, nothing of it stays. */
  createFile(file: GivenFile, as?: As): Promise<string>
  /** Gives a file other content, under its id. */
  replaceFile(id: string, file: GivenFile, as?: As): Promise<void>
  /** The content of a committed file, or its bytes from `start` to `end`, both included. 403 and 404 as `GET /assets/{id}`. */
  readFile(
    id: string,
    options?: As & { readonly range?: { readonly start: number; readonly end: number } },
  ): Promise<StoredFile>
}

export function storageServiceFor(deps: ExtensionWrites, platform: () => Requester): StorageService {
  const requesterOf = ({ accountability }: As = {}): Requester => {
    const own = platform()
    if (accountability == null) return own
    const caller = requesterFor(accountability)
    // In a transaction the log names the one whose change it is.
    return { ...caller, actor: own.scope === undefined ? caller.actor : own.actor, scope: own.scope }
  }
  return {
    createFile: async (file, as) => {
      const { incoming, fields } = incomingOf(file)
      return saveFile(deps, requesterOf(as), incoming, fields)
    },
    replaceFile: async (id, file, as) => {
      const { incoming, fields } = incomingOf(file)
      return replaceFile(deps, requesterOf(as), id, incoming, fields)
    },
    readFile: async (id, { range, ...as } = {}) => {
      const file = await fileFor(deps, id, as)
      const found = await contentsOf(deps).original(file).read(range)
      if (found === undefined) throw fileNotFound()
      const { type, size, hash, name: filename } = file
      return {
        id: file.id,
        filename,
        type,
        size,
        hash,
        content: Buffer.isBuffer(found) ? Readable.from([found]) : found,
      }
    },
  }
}

async function fileFor(deps: ExtensionWrites, id: string, { accountability }: As): Promise<AssetRow> {
  const access = accountability == null ? undefined : requesterFor(accountability).access
  const file =
    access === undefined
      ? await storedAsset(deps, id)
      : await readableAsset(deps, { userId: access.userId, access }, id)
  if (file === undefined) throw fileNotFound()
  return file
}

function incomingOf({ content, filename, type, ...fields }: GivenFile): {
  incoming: Incoming
  fields: Map<string, unknown>
} {
  if (typeof filename !== 'string') throw new TypeError('a file needs a filename')
  return {
    incoming: { content: piecesOf(content), name: filename, declared: type },
    fields: new Map(Object.entries(fields)),
  }
}

async function* piecesOf(content: GivenContent): AsyncGenerator<Uint8Array> {
  if (typeof content === 'string') yield Buffer.from(content)
  else if (content instanceof Uint8Array) yield content
  else yield* content
}
