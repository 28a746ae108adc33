import { factNames, isDescribed, type MediaDescription } from '../images/images.ts'

/** The columns of a row that say what its metadata is about. */
export type Described = {
  readonly type: string
  readonly typeProven: boolean
  /** JSON. */
  readonly metadata: string | null
}

/**
 * The metadata of a file after its content was replaced: without the facts about the content before, with those about the new
 * one. Other members are the sender's own and stay. Pure.
 */
export function metadataAfter(before: Described, facts: MediaDescription['metadata']): unknown {
  const kept = before.metadata === null ? null : (JSON.parse(before.metadata) as unknown)
  if (kept === null) return facts ?? null
  if (typeof kept !== 'object' || Array.isArray(kept)) return kept
  const hasFacts = before.typeProven && isDescribed(before.type)
  const own = Object.entries(kept).filter(([name]) => !(hasFacts && factNames.has(name)))
  const isEmpty = own.length === 0 && facts === undefined
  return isEmpty && hasFacts ? null : { ...Object.fromEntries(own), ...facts }
}
