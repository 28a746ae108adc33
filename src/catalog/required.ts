import { quoteName } from '../db/sql.ts'
import type { Catalog, Collection, Field } from './catalog.ts'
import { isReplaced } from './ddl-column.ts'
import { defaultExpression } from './defaults.ts'

/** A field that stored rows may have no value for, though the next catalog requires one. */
export type Gap = {
  readonly collection: string
  readonly field: string
  /** Counts the rows without a value, as `rows`. */
  readonly countSql: string
}

/** The fields that become required without anything that gives stored rows a value. Pure. */
export function requiredGaps(before: Catalog, after: Catalog): readonly Gap[] {
  return [...after.collections.values()].flatMap((collection) => {
    const old = before.collections.get(collection.name)
    return old === undefined ? [] : [...collection.fields.values()].flatMap((field) => gapOf(old, field))
  })
}

function gapOf({ name, fields }: Collection, field: Field): Gap[] {
  const before = fields.get(field.name)
  if (field.nullable || field.generated !== undefined || before?.nullable === false) return []
  const isKept = before !== undefined && !isReplaced(before, field)
  const isFilled = defaultExpression(field) !== undefined || field.default?.kind === 'autoincrement'
  if (!isKept && isFilled) return []
  const where = isKept ? ` where ${quoteName(field.name)} is null` : ''
  return [{ collection: name, field: field.name, countSql: `select count(*) as rows from ${quoteName(name)}${where}` }]
}
