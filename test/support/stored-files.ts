import { createHash, randomUUID } from 'node:crypto'
import { buffer } from 'node:stream/consumers'
import type { Api } from './api.ts'

export type Given = {
  readonly content: Buffer | string
  readonly type?: string
  readonly typeProven?: boolean
  readonly name?: string
  readonly isPublic?: boolean
  readonly tenant?: string
  readonly folder?: string
  readonly storage?: string
  /** Without, there is the row alone. */
  readonly isStored?: boolean
  readonly width?: number
  readonly height?: number
}

/** A file as an upload leaves it, without the upload. */
export async function storeFile(api: Api, given: Given): Promise<{ id: string; filename: string }> {
  const { type = 'image/png', typeProven = true, name = 'picture.png', isPublic = false, folder = null } = given
  const bytes = Buffer.from(given.content)
  const id = randomUUID()
  const filename = `${id}-${name.replaceAll(/[^A-Za-z0-9._-]/g, '_')}`
  const storage = given.storage ?? api.runtime.storages.usual().name
  const key = folder === null ? filename : `${folder}/${filename}`
  if (given.isStored !== false) await api.runtime.storages.named(storage).write(key, one(bytes), { type })
  await api.sql(
    `insert into "svc_File" (id, title, filename, "originalFilename", type, "typeProven", size, hash, storage, storage_folder,
       "isPublic", "tenant_Id", width, height, "createdAt", "updatedAt")
     values ($1, $2, $3, $2, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, now(), now())`,
    [
      ...[
        id,
        name,
        filename,
        type,
        typeProven,
        bytes.length,
        createHash('sha256').update(bytes).digest('hex'),
        storage,
      ],
      ...[folder, isPublic, given.tenant ?? null, given.width ?? null, given.height ?? null],
    ],
  )
  return { id, filename }
}

/** What is stored under a key; undefined where there is nothing. */
export async function storedContent(api: Api, key: string): Promise<Buffer | undefined> {
  const content = await api.runtime.storages.usual().read(key)
  return content && buffer(content)
}

async function* one(bytes: Buffer): AsyncGenerator<Buffer> {
  yield bytes
}
