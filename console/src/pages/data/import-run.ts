import { DaybookError } from '../../../../clients/client.ts'
import { client } from '../../app/client.ts'

/** Rows for a collection, as they are sent. */
export type RowsFile = {
  readonly collection: string
  readonly format: 'csv' | 'json'
  readonly name: string
  readonly content: Blob
  readonly notation: Notation
}

/** How the file writes times without an offset, numbers and dates: parameters of an import. */
export type Notation = {
  readonly timezone: string
  readonly decimal: string
  readonly dateFormat: string
}

export type BrokenRow = {
  readonly row?: number
  readonly item?: number
  readonly line?: number
  readonly error: string
  readonly fields: readonly { readonly field: string; readonly message: string }[]
}

/** The effects that an import would have. */
export type Findings = {
  readonly rows: number
  readonly complete: boolean
  readonly changes: readonly { readonly collection: string; readonly create: number; readonly update: number }[]
  readonly skipsHooks: boolean
  readonly failed: number
  readonly errors: readonly BrokenRow[]
}

/** Has the server try it, and take it back. */
export async function tryRows(file: RowsFile, signal: AbortSignal): Promise<Findings> {
  const { body } = await client.send<{ results: Findings }>(pathOf(file), {
    method: 'POST',
    query: { dryRun: true },
    body: formOf(file),
    signal,
  })
  return body.results
}

/** Imports all rows or none. `id` names the import, for {@link rowsSoFar} and {@link wasWritten}. */
export const importRows = (file: RowsFile, id: string, signal: AbortSignal) =>
  client.send<{ results: { imported: number } }>(pathOf(file), {
    method: 'POST',
    body: formOf(file),
    idempotencyKey: id,
    headers: { 'x-request-id': id },
    signal,
  })

type Notice = { readonly data: { readonly request?: string; readonly rows?: number } | null }

/** How many rows the server has read; undefined until it says so, which it does of imports that take some seconds. */
export async function rowsSoFar(id: string, signal: AbortSignal): Promise<number | undefined> {
  const query = { limit: 10, fields: 'data', sort: '-createdAt' }
  const { data } = await client.request<{ data: readonly Notice[] }>('/notifications', { query, signal })
  return data.find((notice) => notice.data?.request === id)?.data?.rows
}

/**
 * Whether an import that was broken off had been written by then. It is asked for again with its key and nothing to import:
 * the key stands for another request where it was written, and the file is empty where it was not.
 */
export async function wasWritten(file: RowsFile, id: string): Promise<boolean> {
  try {
    await client.send(pathOf(file), {
      method: 'POST',
      body: formOf({ ...file, content: new Blob([]) }),
      idempotencyKey: id,
    })
  } catch (error) {
    if (error instanceof DaybookError && error.status === 400) return false
    if (error instanceof DaybookError && error.code === 'IDEMPOTENCY_KEY_REUSED') return true
    throw error
  }
  throw new Error('The server has imported a file without rows.')
}

const pathOf = ({ collection, format }: RowsFile) => `/items/${encodeURIComponent(collection)}/import-${format}`

function formOf({ format, name, content, notation }: RowsFile): FormData {
  const form = new FormData()
  for (const [parameter, value] of Object.entries(notation)) form.set(parameter, value)
  form.set(`${format}File`, content, name)
  return form
}
