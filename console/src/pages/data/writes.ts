import { useState } from 'react'
import { type Answer, DaybookError } from '../../../../clients/client.ts'
import { client, queryClient } from '../../app/client.ts'
import { notify, notifyError } from '../../ui/toast.tsx'
import type { Conflict } from './conflict.ts'
import type { Row } from './query.ts'

const pathOf = (collection: string, id: string) => `/items/${encodeURIComponent(collection)}/${encodeURIComponent(id)}`

/** A row with the version that a write may name. */
export type Version = { readonly row: Row; readonly etag: string | undefined }

/** Reads a row as it is now. */
export async function readVersion(collection: string, id: string, fields: readonly string[] = ['*']): Promise<Version> {
  const { body, headers } = await client.send<{ data: Row }>(pathOf(collection, id), {
    query: { fields: fields.join(',') },
  })
  return { row: body.data, etag: headers.get('etag') ?? undefined }
}

/** Changes a row where it still is what `etag` names. @throws {DaybookError} 412 where somebody else was first */
export async function patchRow(collection: string, id: string, change: Row, etag: string | undefined): Promise<void> {
  const answer = await client.send(pathOf(collection, id), {
    method: 'PATCH',
    body: change,
    headers: etag === undefined ? {} : { 'if-match': etag },
  })
  told('Saved', answer)
}

/** What a change of `base` has met that was refused because somebody else was first; undefined for any other failure. */
export async function conflictOf(
  failure: unknown,
  collection: string,
  id: string,
  meant: Pick<Conflict, 'base' | 'mine' | 'related'>,
  fields?: readonly string[],
): Promise<Conflict | undefined> {
  if (!(failure instanceof DaybookError && failure.status === 412)) return undefined
  const { row: theirs, etag } = await readVersion(collection, id, fields)
  return { ...meant, theirs, etag }
}

/** What was typed, by the name of its field, less what has been sent: the rest was typed while that was on its way. */
export function typedSince<Typed extends object>(typed: Typed, sent: Partial<Typed>): Typed {
  const left = Object.entries(typed).filter(([name, value]) => sent[name as keyof Typed] !== value)
  return Object.fromEntries(left) as Typed
}

/**
 * The row that a form changes: `live` until something is typed, then as it was at that moment. What others write since must
 * neither replace nor be replaced by what is typed.
 */
export function useBegun(live: Version, isTouched: boolean) {
  const [begun, setBegun] = useState(live)
  return {
    ...(isTouched ? begun : live),
    /** Before something is typed. */
    begin: () => {
      if (!isTouched) setBegun(live)
    },
    /** What is still typed is a change of this. */
    beginAt: setBegun,
  }
}

export async function createRow(collection: string, row: Row): Promise<string> {
  const answer = await client.send<{ data: { id: string | number } }>(`/items/${encodeURIComponent(collection)}`, {
    method: 'POST',
    body: row,
  })
  told('Created', answer)
  return String(answer.body.data.id)
}

export async function deleteRows(collection: string, ids: readonly string[]): Promise<void> {
  const [only] = ids
  const answer =
    ids.length === 1
      ? await client.send(pathOf(collection, only!), { method: 'DELETE' })
      : await client.send(`/items/${encodeURIComponent(collection)}/bulk`, { method: 'DELETE', body: ids })
  told(ids.length === 1 ? 'Deleted' : `${ids.length} rows deleted`, answer)
}

export async function changeRows(collection: string, rows: readonly Row[]): Promise<void> {
  const answer = await client.send(`/items/${encodeURIComponent(collection)}/bulk`, { method: 'PATCH', body: rows })
  told(`${rows.length} rows changed`, answer)
}

/** Says what was done, with the way back: everything that a request did is undone as a whole. */
export function told(title: string, { headers }: Answer<unknown>): void {
  void queryClient.invalidateQueries({ queryKey: ['count'] })
  void queryClient.invalidateQueries({ queryKey: ['history'] })
  const requestId = headers.get('x-log-request-id') ?? headers.get('x-request-id')
  notify(title, requestId === null ? {} : { undo: () => undo(requestId) })
}

/** Whether there is nothing left to try: it is undone, or the server says why that cannot be. */
async function undo(requestId: string): Promise<boolean> {
  try {
    await client.undo({ requestId })
  } catch (error) {
    notifyError(error)
    return error instanceof DaybookError && error.status === 409
  }
  notify('Undone')
  void queryClient.invalidateQueries()
  return true
}
