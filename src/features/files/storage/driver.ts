import type { Readable } from 'node:stream'
import type { StorageServiceConfig } from '../../../config/families.ts'
import { AppError } from '../../../errors.ts'

/**
 * A place for content. Content is never changed: it is written under a key of its own, read, and deleted.
 *
 * A key is a relative path, `tenants/…/{id}-name.png`, whose parts are names (400 for others, and for a key that leads
 * out of the service). Where the service itself does not answer, every verb is a 503, `STORAGE_UNAVAILABLE`.
 */
export type Storage = {
  readonly name: string
  readonly driver: StorageServiceConfig['driver']
  /**
   * Stores what comes, piece by piece, under a key that is not taken. Durable when it resolves. Nothing is left where it
   * throws; what the content itself throws is thrown on.
   */
  write(key: string, content: AsyncIterable<Uint8Array>, more?: { readonly type?: string }): Promise<void>
  /** The content, or a part of it; undefined where there is none. Must be read to its end or destroyed. */
  read(key: string, range?: Range): Promise<Readable | undefined>
  stat(key: string): Promise<Stored | undefined>
  /** Within the service; the source stays. */
  copy(from: string, to: string): Promise<void>
  /** Nothing happens where there is none. */
  delete(key: string): Promise<void>
  /** All whose key begins so, in no order. */
  list(prefix: string): AsyncIterable<Listed>
  /** An address that reads the content for a while, without us; undefined where the service has none. */
  presign(key: string, wanted: Presigned): Promise<string | undefined>
}

/** The first byte and the last one. */
export type Range = { readonly start: number; readonly end: number }

export type Stored = { readonly size: number; readonly modifiedAt: Date }
export type Listed = Stored & { readonly key: string }

/** Properties of the answer of a presigned address. */
type Presigned = { readonly expiresInSeconds: number; readonly type?: string; readonly disposition?: string }

/** The work of a driver, with the errors of its system; keys are checked before. */
export type Driver = Omit<Storage, 'name' | 'driver'> & { close(): void }

/** The refusal of an invalid key, or of one that leads out of the service by a link. */
export const badPath = (cause?: unknown): AppError =>
  new AppError(400, 'The path is not valid', { code: 'INVALID_PATH', cause })
