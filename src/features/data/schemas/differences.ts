import { isDeepStrictEqual } from 'node:util'
import type { SchemaJson } from '../../../catalog/catalog.ts'

/** What a new schema brings, for the preview of an import. */
export type SchemaSummary = { fields: string[]; relations: string[]; indexes: number }

export function summary({ fields, indexes }: SchemaJson): SchemaSummary {
  const names = (isRelation: boolean) =>
    Object.entries(Object(fields) as SchemaJson['fields'])
      .filter(([, field]) => (Object(field).relType !== undefined) === isRelation)
      .map(([name]) => name)
  return { fields: names(false), relations: names(true), indexes: Array.isArray(indexes) ? indexes.length : 0 }
}

/** From one schema to the next in words: `field price added`, `timestamps changed`. */
export function differences(before: SchemaJson, after: SchemaJson): string[] {
  const { fields, ...others } = before
  const { fields: nextFields, ...nextOthers } = after
  return [
    ...compared(fields, Object(nextFields)).map((difference) => `field ${difference}`),
    ...compared(others, nextOthers),
  ]
}

function compared(before: Readonly<Record<string, unknown>>, after: Readonly<Record<string, unknown>>): string[] {
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])].sort()
  return names.flatMap((name) => {
    if (!Object.hasOwn(before, name)) return [`${name} added`]
    if (!Object.hasOwn(after, name)) return [`${name} removed`]
    return isDeepStrictEqual(before[name], after[name]) ? [] : [`${name} changed`]
  })
}
