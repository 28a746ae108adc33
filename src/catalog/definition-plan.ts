import { isDeepStrictEqual } from 'node:util'
import { quoteName, type Reader, rawQuery } from '../db/sql.ts'
import { AppError } from '../errors.ts'
import type { Catalog, CatalogOptions, Collection, CollectionDefinition } from './catalog.ts'
import { compileCatalog } from './compile.ts'
import { checksOf } from './compile-index.ts'
import { catalogChangesSql } from './ddl.ts'
import { declaredSchema } from './declared.ts'
import { type Definitions, definitionsOf, listOf, toStored } from './definitions.ts'
import { withMissingJunctions } from './junctions.ts'
import { type Gap, requiredGaps } from './required.ts'

export type CollectionChange = { readonly collection: string; readonly change: 'create' | 'update' | 'delete' }

/** A change of definitions before it is made. */
export type DefinitionPlan = {
  readonly next: Definitions
  readonly after: Catalog
  /** In name order. */
  readonly changes: readonly CollectionChange[]
  /** What brings the tables to the next definitions. */
  readonly statements: readonly string[]
  readonly losses: readonly Loss[]
  /** What stored rows may lack of what the next definitions require. */
  readonly gaps: readonly Gap[]
}

/** Something that is there before a change and not after it: a whole collection, or one part of it. */
export type Loss = {
  readonly collection: string
  readonly field?: string
  readonly relation?: string
  readonly index?: string
  readonly constraint?: string
}

/** A loss with what it held: rows of a collection, values of a field. */
export type Dropped = Loss & { readonly rows?: number; readonly values?: number }

/**
 * What a change of definitions would do. Pure. Everything that the edit has changed goes through the door of definitions, and
 * junctions that a BelongsToMany names and nobody declares are added.
 *
 * @throws AppError 400 for definitions that do not compile or cannot be reached from the present ones
 */
export function planChange(
  stored: readonly CollectionDefinition[],
  edit: (catalog: Catalog) => Definitions,
  options: CatalogOptions,
): DefinitionPlan {
  const before = compileCatalog(stored, options)
  const next = withMissingJunctions(declared(before, edit(before)))
  const after = compileCatalog(listOf(next), options)
  return {
    next,
    after,
    changes: changesBetween(definitionsOf(before), next),
    statements: catalogChangesSql(before, after),
    losses: lossesBetween(before, after),
    gaps: requiredGaps(before, after),
  }
}

/** Counts what is about to be lost: one look at each table. */
export async function countLosses(db: Reader, { losses }: Pick<DefinitionPlan, 'losses'>): Promise<Dropped[]> {
  const dropped: Dropped[] = []
  for (const collection of new Set(losses.map((loss) => loss.collection))) {
    const own = losses.filter((loss) => loss.collection === collection)
    dropped.push(...(await counted(db, collection, own)))
  }
  return dropped
}

/** 400 with every field that stored rows have no value for; PostgreSQL would name the first, and not how many they are. */
export async function refuseGaps(db: Reader, { gaps }: Pick<DefinitionPlan, 'gaps'>): Promise<void> {
  const found: string[] = []
  for (const { collection, field, countSql } of gaps) {
    const { rows } = await db.one<{ rows: bigint | number | string }>(rawQuery(countSql))
    if (BigInt(rows) > 0n) found.push(`${collection}.${field} is required, and stored rows without a value: ${rows}`)
  }
  if (found.length > 0)
    throw new AppError(400, 'The schema cannot be applied', {
      code: 'SCHEMA_NOT_APPLICABLE',
      details: found.join('; '),
    })
}

function declared(catalog: Catalog, edited: Definitions): Definitions {
  return new Map(
    [...edited].map(([collection, schema]) => {
      const isKept = catalog.collections.get(collection)?.definition.schema === schema
      return [collection, isKept ? schema : declaredSchema({ catalog, collection, beside: edited }, schema)]
    }),
  )
}

function changesBetween(before: Definitions, after: Definitions): CollectionChange[] {
  const names = [...new Set([...before.keys(), ...after.keys()])].sort()
  return names.flatMap((collection): CollectionChange[] => {
    if (!before.has(collection)) return [{ collection, change: 'create' }]
    if (!after.has(collection)) return [{ collection, change: 'delete' }]
    const isSame = isDeepStrictEqual(toStored(before.get(collection)!), toStored(after.get(collection)!))
    return isSame ? [] : [{ collection, change: 'update' }]
  })
}

function lossesBetween(before: Catalog, after: Catalog): Loss[] {
  return [...before.collections.values()].flatMap((old): Loss[] => {
    const collection = after.collections.get(old.name)
    return collection === undefined ? [{ collection: old.name }] : lossesOf(old, collection)
  })
}

function lossesOf(old: Collection, next: Collection): Loss[] {
  if (old.definition.schema === next.definition.schema) return []
  const { name: collection } = old
  const isDeclared = (name: string) => Object.hasOwn(old.definition.schema.fields, name)
  const missing = (names: Iterable<string>, kept: Iterable<string>) => {
    const still = new Set(kept)
    return [...names].filter((name) => !still.has(name))
  }
  const namesOf = (list: readonly { name: string }[]) => list.map(({ name }) => name)
  return [
    ...missing(old.fields.keys(), next.fields.keys()).map((field) => ({ collection, field })),
    ...missing(old.relations.keys(), next.relations.keys())
      .filter(isDeclared)
      .map((relation) => ({ collection, relation })),
    ...missing(namesOf(old.indexes), namesOf(next.indexes)).map((index) => ({ collection, index })),
    ...missing(namesOf(checksOf(old.definition)), namesOf(checksOf(next.definition))).map((constraint) => ({
      collection,
      constraint,
    })),
  ]
}

async function counted(db: Reader, collection: string, losses: readonly Loss[]): Promise<Dropped[]> {
  const isWhole = (loss: Loss) => Object.keys(loss).length === 1
  const fields = losses.flatMap(({ field }) => field ?? [])
  if (fields.length === 0 && !losses.some(isWhole)) return [...losses]
  const counts = fields.map((field, i) => `, count(${quoteName(field)}) as "${i}"`).join('')
  const row = await db.one<Record<string, string | number>>(
    rawQuery(`select count(*) as rows${counts} from ${quoteName(collection)}`),
  )
  return losses.map((loss): Dropped => {
    if (isWhole(loss)) return { ...loss, rows: Number(row.rows) }
    return loss.field === undefined ? loss : { ...loss, values: Number(row[String(fields.indexOf(loss.field))]) }
  })
}
