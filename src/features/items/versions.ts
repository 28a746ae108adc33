import { hash } from 'node:crypto'
import { AppError, errors } from '../../errors.ts'
import type { Changed } from './statements.ts'

/**
 * Versions of rows and entity tags of answers.
 *
 * A row's version is the transaction that wrote it (`xmin`): every change by anybody gives it another one, and comparing
 * it costs nothing. The tag of a single item is its version and a hash of the answer, because the same version answers
 * differently by fields, related rows and caller. `If-None-Match` compares whole tags, `If-Match` the versions.
 */

/** Versions of which a row must have one. */
export type Versions = readonly string[]

export function itemTag(version: string, body: string): string {
  return `"${version}-${digest(body)}"`
}

export function listTag(body: string): string {
  return `"${digest(body)}"`
}

/** Whether the client has this answer already. Weak and strong tags compare alike (RFC 9110 §13.1.2). */
export function isFresh(ifNoneMatch: string | undefined, tag: string): boolean {
  if (ifNoneMatch === undefined) return false
  return ifNoneMatch.trim() === '*' || tagsOf(ifNoneMatch).includes(tag)
}

/** The versions that `If-Match` names; undefined where any will do. A tag of something else matches nothing. */
export function versionsOf(ifMatch: string | undefined): Versions | undefined {
  if (ifMatch === undefined || ifMatch.trim() === '*') return undefined
  return tagsOf(ifMatch).flatMap((tag) => /^"(\d{1,10})-[\w-]+"$/.exec(tag)?.[1] ?? [])
}

/** The id of the item that a statement changed. 403 when there is none for the caller, 412 when it has another version. */
export function changedId(action: 'update' | 'delete', rows: readonly Changed[]): string {
  const [row] = rows
  if (row === undefined || row.found === false) throw errors.itemDenied(action)
  if (row.id === null)
    throw new AppError(412, 'The item has changed since it was read', { code: 'PRECONDITION_FAILED' })
  return row.id
}

const tagsOf = (header: string): string[] => header.match(/"[^"]*"/g) ?? []

const digest = (body: string): string => hash('sha1', body, 'base64url')
