import { plain } from '../../near-names.ts'
import { relationWords } from './synonyms.ts'

/** The kinds of relationships, in the specification's short words. */
export const relationshipTypes = ['M2O', 'O2M', 'O2O', 'M2M', 'M2A'] as const
export type RelationshipType = (typeof relationshipTypes)[number]

/** The words of inline relations for them. */
export const relTypes = ['BelongsTo', 'HasMany', 'HasOne', 'BelongsToMany'] as const
export type RelType = (typeof relTypes)[number]

const typeOf: Readonly<Record<RelType | RelationshipType, RelationshipType>> = {
  M2O: 'M2O',
  O2M: 'O2M',
  O2O: 'O2O',
  M2M: 'M2M',
  M2A: 'M2A',
  BelongsTo: 'M2O',
  HasMany: 'O2M',
  HasOne: 'O2O',
  BelongsToMany: 'M2M',
}

/** The kind that a word names, whichever of the two vocabularies it is from; undefined for other words. */
export function relationshipTypeOf(word: unknown): RelationshipType | undefined {
  return typeof word === 'string' && Object.hasOwn(typeOf, word) ? typeOf[word as RelType] : undefined
}

/** The right word for one that another product has; undefined where nothing is near. */
export function relationWordFor(word: string): string | undefined {
  const same = Object.keys(typeOf).find((known) => plain(known) === plain(word))
  return same ?? relationWords[plain(word)]
}
