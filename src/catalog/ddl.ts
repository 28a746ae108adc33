import { isDeepStrictEqual } from 'node:util'
import { quoteName, quoteText } from '../db/sql.ts'
import { AppError } from '../errors.ts'
import {
  type Catalog,
  type Check,
  type Collection,
  type Field,
  type Index,
  type LinkEnd,
  linkEnds,
  type Relation,
} from './catalog.ts'
import { checksOf, plainIndex } from './compile.ts'
import { defaultExpression, type Extension, extensionOf } from './fields.ts'
import { shortened } from './identifiers.ts'
import { dropLogTriggersSql, logFunctionSql, logTriggersSql } from './log-triggers.ts'
import type { DefinitionProblem } from './shape.ts'

/**
 * The statements that bring the tables of one catalog to the next. Pure. They run in the transaction that stores the
 * definitions, so a failing one leaves tables, definitions and catalog as they were.
 *
 * The order is what makes any mixture of changes work: what is in the way goes first (foreign keys, checks, indexes,
 * dropped tables), then tables and columns, then what needs them (indexes, foreign keys), last the log triggers.
 */
export function catalogChangesSql(before: Catalog, after: Catalog): string[] {
  const dropped = [...before.collections.values()].filter(({ name }) => !after.collections.has(name))
  const created = [...after.collections.values()].filter(({ name }) => !before.collections.has(name))
  const kept = [...after.collections.values()].flatMap((collection): Pair[] => {
    const old = before.collections.get(collection.name)
    return old === undefined ? [] : [{ old, collection }]
  })
  for (const pair of kept) {
    checkKeyKept(pair)
    checkTargetsKept(pair)
  }
  return [
    ...extensionsSql(before, after),
    ...kept.flatMap(removalsSql),
    ...kept.flatMap(trashEmptiedSql),
    ...dropped.flatMap((collection) =>
      foreignKeysOf(collection).map((relation) => dropForeignKeySql(collection, relation)),
    ),
    ...kept.flatMap((pair) => orphanedLinksSql(pair, dropped)),
    ...dropped.flatMap(dropTableSql),
    ...created.flatMap(createTableSql),
    ...kept.flatMap(columnsSql),
    ...kept.flatMap(additionsSql),
    ...created.flatMap((collection) =>
      foreignKeysOf(collection).map((relation) => addForeignKeySql(collection, relation)),
    ),
    ...kept.flatMap(newForeignKeysSql),
    ...created.flatMap((collection) => logTriggersSql(collection, linkEnds(after, collection))),
    ...kept.flatMap((pair) => changedTriggersSql(pair, before, after)),
  ]
}

/** Every index that a collection's table has besides its constraints': the declared ones and those of foreign keys. */
export function tableIndexes(collection: Collection): readonly Index[] {
  return [...collection.indexes, ...foreignKeyIndexes(collection)]
}

export function createIndexSql(collection: Collection, index: Index): string {
  const { name, fields, unique, nullsNotDistinct, whereNotNull, method } = index
  const columns = fields.map(quoteName).join(', ')
  const nulls = nullsNotDistinct ? ' nulls not distinct' : ''
  const where = whereNotNull.map((field) => `${quoteName(field)} is not null`).join(' and ')
  return (
    `create ${unique ? 'unique ' : ''}index ${quoteName(name)} on ${quoteName(collection.name)} ` +
    `using ${method} (${columns})${nulls}${where === '' ? '' : ` where ${where}`}`
  )
}

/** Creates an extension unless it is there; only then it needs the right to. */
export function createExtensionSql(extension: Extension): string {
  return `create extension if not exists ${quoteName(extension)}`
}

type Pair = { readonly old: Collection; readonly collection: Collection }

function checkKeyKept({ old, collection }: Pair): void {
  const [before, after] = [old.primaryKey, collection.primaryKey]
  if (before.name !== after.name || before.pgType !== after.pgType)
    throw new AppError(400, `Invalid schema for ${collection.name}: the primary key cannot be changed`, {
      code: 'INVALID_SCHEMA',
    })
}

/**
 * A stored key means a row of the collection that it was written for. Under another target it would be a reference to whichever row has
 * the same key there, in the past as well.
 */
function checkTargetsKept({ old, collection }: Pair): void {
  if (old.relations === collection.relations) return
  const problems = [...collection.relations.values()].flatMap((relation) => retargeted(old, collection, relation))
  if (problems.length === 0) return
  const words = problems.map(({ path, message }) => `${path}: ${message}`).join('; ')
  throw new AppError(400, `Invalid schema for ${collection.name}: ${words}`, {
    code: 'INVALID_SCHEMA',
    details: { errors: problems },
  })
}

function retargeted(old: Collection, collection: Collection, relation: Relation): DefinitionProblem[] {
  const column = storedKeyOf(relation)
  if (column === undefined || (relation.kind === 'belongsTo' && !keepsColumn({ old, collection }, column))) return []
  const before = [...old.relations.values()].filter(
    (other) => storedKeyOf(other) === column && isDeepStrictEqual(placeOf(other), placeOf(relation)),
  )
  const isKept = before.some(({ target, targetKey }) => target === relation.target && targetKey === relation.targetKey)
  if (before.length === 0 || isKept) return []
  const [{ target, targetKey }] = before as [Relation]
  const [word, was] = target === relation.target ? ['targetKey', targetKey] : ['target', target]
  const message = `cannot be changed: stored keys are of ${was}; delete the relationship and create another`
  return [{ path: `fields.${relation.name}.${word}`, message }]
}

/** The column with keys of the target. */
function storedKeyOf({ kind, foreignKey, otherKey }: Relation): string | undefined {
  if (kind === 'belongsTo') return foreignKey
  return kind === 'belongsToMany' ? otherKey : undefined
}

/** The table of that column, and the rows in it that count. */
const placeOf = ({ kind, through, discriminator }: Relation) => ({ kind, through, discriminator })

function keepsColumn({ old, collection }: Pair, column: string): boolean {
  const [before, after] = [old.fields.get(column), collection.fields.get(column)]
  return before !== undefined && after !== undefined && !isReplaced(before, after)
}

function extensionsSql(before: Catalog, after: Catalog): string[] {
  const known = extensionsOf(before)
  return [...extensionsOf(after)].filter((extension) => !known.has(extension)).map(createExtensionSql)
}

function extensionsOf({ collections }: Catalog): ReadonlySet<Extension> {
  const types = [...collections.values()].flatMap(({ fields }) => [...fields.values()].map(({ type }) => type))
  return new Set(types.map(extensionOf).filter((extension) => extension !== undefined))
}

function createTableSql(collection: Collection): string[] {
  const fields = [...collection.fields.values()]
  const columns = fields.map((field) => columnSql(collection, field))
  return [
    `create table ${quoteName(collection.name)} (${columns.join(', ')})`,
    ...fields.flatMap((field) => enumCheckSql(collection, field)),
    ...checksOf(collection.definition).map((check) => addCheckSql(collection, check)),
    ...tableIndexes(collection).map((index) => createIndexSql(collection, index)),
  ]
}

/** What SQL from outside has dropped already must not keep a definition from going. */
function dropTableSql(collection: Collection): string[] {
  return [...dropLogTriggersSql(collection.name), `drop table if exists ${quoteName(collection.name)}`]
}

/** Rows of a many-to-any junction that point at a collection which is being dropped. */
function orphanedLinksSql({ old }: Pair, dropped: readonly Collection[]): string[] {
  const gone = new Set(dropped.map(({ name }) => name))
  return [...old.relations.values()].flatMap(({ kind, target, discriminator }) =>
    kind === 'belongsTo' && discriminator !== undefined && gone.has(target)
      ? [
          `delete from ${quoteName(old.name)} where ${quoteName(discriminator.column)} = ${quoteText(discriminator.value)}`,
        ]
      : [],
  )
}

/** Drops everything that is in the way of the new columns, or is gone. */
function removalsSql(pair: Pair): string[] {
  const { old, collection } = pair
  const table = `alter table ${quoteName(old.name)}`
  const foreignKeys = foreignKeysOf(old).filter((relation) => !hasForeignKey(collection, relation))
  const kept = keptIndexes(pair)
  const indexes = tableIndexes(old).filter((index) => !kept.has(index.name))
  const checks = checksOf(old.definition).filter((check) => !isKeptCheck(pair, check))
  return [
    ...foreignKeys.map((relation) => dropForeignKeySql(old, relation)),
    ...indexes.map((index) => `drop index if exists ${quoteName(index.name)}`),
    ...checks.map((check) => `${table} drop constraint ${quoteName(check.name)}`),
  ]
}

/** Without soft delete the deleted rows are back, which the log must tell as long as there is the column that says it. */
function trashEmptiedSql({ old, collection }: Pair): string[] {
  const isEmptied = old.logged && old.paranoid && !collection.paranoid
  return isEmptied ? [`update ${quoteName(old.name)} set "deletedAt" = null where "deletedAt" is not null`] : []
}

/** VIRTUAL columns depend on others: they are dropped before them and added after them. */
function columnsSql(pair: Pair): string[] {
  const { old, collection } = pair
  const table = `alter table ${quoteName(collection.name)}`
  const stays = (name: string) => isKeptField(pair, name)
  const [gone, fields] = [lostFields(pair), [...collection.fields.values()]]
  const added = fields.filter(({ name }) => !stays(name))
  return [
    ...[...gone.filter(isGenerated), ...gone.filter(isStored)].map(
      ({ name }) => `${table} drop column ${quoteName(name)}`,
    ),
    ...fields
      .filter(({ name }) => stays(name))
      .flatMap((field) => changeColumnSql(collection, old.fields.get(field.name)!, field)),
    ...[...added.filter(isStored), ...added.filter(isGenerated)].flatMap((field) => [
      `${table} add column ${columnSql(collection, field)}`,
      ...enumCheckSql(collection, field),
    ]),
  ]
}

const isGenerated = ({ generated }: Field) => generated !== undefined
const isStored = ({ generated }: Field) => generated === undefined

/** Columns that the change drops, some of them to be made anew. */
function lostFields(pair: Pair): Field[] {
  return [...pair.old.fields.values()].filter(({ name }) => !isKeptField(pair, name))
}

function isKeptField({ old, collection }: Pair, name: string): boolean {
  const [before, after] = [old.fields.get(name), collection.fields.get(name)]
  return before !== undefined && after !== undefined && !isReplaced(before, after)
}

function additionsSql(pair: Pair): string[] {
  const { collection } = pair
  const checks = checksOf(collection.definition).filter((check) => !isKeptCheck(pair, check))
  const kept = keptIndexes(pair)
  const indexes = tableIndexes(collection).filter((index) => !kept.has(index.name))
  return [
    ...checks.map((check) => addCheckSql(collection, check)),
    ...indexes.map((index) => createIndexSql(collection, index)),
  ]
}

function newForeignKeysSql({ old, collection }: Pair): string[] {
  const all = foreignKeysOf(collection)
  const added = all.filter((relation) => !hasForeignKey(old, relation))
  const isOwn = ({ target }: Relation) => target === collection.name
  // Those that delete rows of this table stay the last ones.
  const isEmptying = added.some((relation) => isOwn(relation) && !isCascading(relation))
  const again = isEmptying
    ? all.filter((relation) => isOwn(relation) && isCascading(relation) && !added.includes(relation))
    : []
  return [
    ...again.map((relation) => dropForeignKeySql(collection, relation)),
    ...[...added, ...again].map((relation) => addForeignKeySql(collection, relation)),
  ]
}

function changedTriggersSql({ old, collection }: Pair, before: Catalog, after: Catalog): string[] {
  const ends = linkEnds(after, collection)
  if (!isDeepStrictEqual(imageShape(old), imageShape(collection))) return logTriggersSql(collection, ends)
  const isSame = isDeepStrictEqual(linkEnds(before, old).map(endShape), ends.map(endShape))
  return isSame ? [] : logFunctionSql(collection, ends)
}

/** Names of indexes that are the same before and after, on columns that stay the same ones. */
function keptIndexes(pair: Pair): ReadonlySet<string> {
  const before = new Map(tableIndexes(pair.old).map((index) => [index.name, index]))
  const kept = tableIndexes(pair.collection).filter(
    (index) =>
      isDeepStrictEqual(before.get(index.name), index) && index.fields.every((field) => isKeptField(pair, field)),
  )
  return new Set(kept.map(({ name }) => name))
}

/** Every foreign key column has an index, or cascades and to-many reads would scan the table. */
function foreignKeyIndexes(collection: Collection): Index[] {
  const leading = new Set(
    collection.indexes
      .filter(({ method, whereNotNull }) => method === 'btree' && whereNotNull.length === 0)
      .map(({ fields }) => fields[0]),
  )
  return foreignKeysOf(collection)
    .map(({ foreignKey }) => collection.fields.get(foreignKey)!)
    .filter(({ name, unique, primaryKey }) => !leading.has(name) && !unique && !primaryKey)
    .map(({ name }) => plainIndex(shortened(`${collection.name}_${name}_fk`), [name], false))
}

/**
 * One relation per constrained column: two aliases of one column share its constraint. Those that delete rows come last: PostgreSQL
 * acts on the constraints of a table in the order in which they were made, and of a row that refers twice to its own table, its update
 * has to be logged before its deletion.
 */
function foreignKeysOf(collection: Collection): Relation[] {
  const constrained = [...collection.relations.values()].filter(({ constraint }) => constraint)
  const all = [...new Map(constrained.map((relation) => [relation.foreignKey, relation])).values()]
  return [...all.filter((relation) => !isCascading(relation)), ...all.filter(isCascading)]
}

const isCascading = ({ onDelete }: Relation): boolean => onDelete === 'CASCADE'

function hasForeignKey(collection: Collection, relation: Relation): boolean {
  return foreignKeysOf(collection).some((other) => isDeepStrictEqual(constraintShape(other), constraintShape(relation)))
}

function constraintShape({ foreignKey, target, targetKey, onDelete, onUpdate }: Relation) {
  return { foreignKey, target, targetKey, onDelete, onUpdate }
}

function addForeignKeySql(collection: Collection, relation: Relation): string {
  return (
    `alter table ${quoteName(collection.name)} add constraint ${foreignKeyName(collection, relation)} ` +
    `foreign key (${quoteName(relation.foreignKey)}) references ${quoteName(relation.target)} (${quoteName(relation.targetKey)}) ` +
    `on delete ${relation.onDelete.toLowerCase()} on update ${relation.onUpdate.toLowerCase()}`
  )
}

function dropForeignKeySql(collection: Collection, relation: Relation): string {
  return `alter table if exists ${quoteName(collection.name)} drop constraint if exists ${foreignKeyName(collection, relation)}`
}

function foreignKeyName(collection: Collection, relation: Relation): string {
  return quoteName(shortened(`${collection.name}_${relation.foreignKey}_fkey`))
}

function addCheckSql(collection: Collection, { name, expression }: Check): string {
  return `alter table ${quoteName(collection.name)} add constraint ${quoteName(name)} check (${expression})`
}

/** PostgreSQL silently drops a CHECK with any column it reads, so all are made again when one goes. */
function isKeptCheck(pair: Pair, check: Check): boolean {
  const [before, after] = [pair.old, pair.collection].map(({ definition }) => checksOf(definition))
  const isIn = (checks: readonly Check[]) => checks.some((other) => isDeepStrictEqual(other, check))
  return lostFields(pair).length === 0 && isIn(before!) && isIn(after!)
}

/** The input of the log triggers of a collection, independent of the order of the fields. */
function imageShape({ logged, fields }: Collection) {
  const shape = [...fields.values()].map(({ name, kind, element, pgType, hidden, unlogged }) => ({
    name,
    kind,
    element,
    pgType,
    hidden,
    unlogged,
  }))
  return { logged, fields: shape.sort((a, b) => (a.name < b.name ? -1 : 1)) }
}

/** Their input from a collection whose items the rows link. */
function endShape({ collection, foreignKey, discriminator }: LinkEnd) {
  return {
    name: collection.name,
    key: collection.primaryKey.name,
    foreignKey,
    discriminator,
    ...imageShape(collection),
  }
}

/* Columns. */

/** A column of `create table` and `add column`: type, default, key, null and unique constraint. */
function columnSql(collection: Collection, field: Field): string {
  const parts = [quoteName(field.name), field.pgType, ...valueClause(field)]
  if (field.primaryKey) parts.push(`constraint ${quoteName(shortened(`${collection.name}_pkey`))} primary key`)
  else if (!field.nullable) parts.push('not null')
  if (field.unique && !field.primaryKey) parts.push(`constraint ${uniqueName(collection, field)} unique`)
  return parts.join(' ')
}

/** The constraint that keeps an ENUM to its values. */
function enumCheckSql(collection: Collection, field: Field): string[] {
  if (field.enumValues === undefined) return []
  const values = field.enumValues.map(quoteText).join(', ')
  return [
    `${alter(collection)} add constraint ${checkName(collection, field)} check (${quoteName(field.name)} in (${values}))`,
  ]
}

/**
 * From one version of a column to the next. Types change by a cast of the stored values, so an impossible one or a value
 * that does not fit ends the change.
 */
function changeColumnSql(collection: Collection, old: Field, field: Field): string[] {
  const table = alter(collection)
  const column = `${table} alter column ${quoteName(field.name)}`
  const retyped = old.pgType !== field.pgType
  const relisted = !isDeepStrictEqual(old.enumValues, field.enumValues)
  return [
    ...(relisted && old.enumValues !== undefined ? [`${table} drop constraint ${checkName(collection, field)}`] : []),
    ...(retyped ? retypeSql(column, old, field) : changeDefaultSql(column, old, field)),
    ...(old.nullable === field.nullable ? [] : [`${column} ${field.nullable ? 'drop' : 'set'} not null`]),
    ...(old.unique === field.unique ? [] : [changeUniqueSql(collection, field)]),
    ...(relisted ? enumCheckSql(collection, field) : []),
  ]
}

/** Whether a change drops the column and adds another: a VIRTUAL one is made anew, as it holds nothing of its own. */
export function isReplaced(old: Field, field: Field): boolean {
  return old.generated !== field.generated
}

function valueClause(field: Field): string[] {
  if (field.generated !== undefined) return [`generated always as ((${field.generated})::${field.pgType}) stored`]
  if (field.default?.kind === 'autoincrement') return ['generated by default as identity']
  const expression = defaultExpression(field)
  return expression === undefined ? [] : [`default ${expression}`]
}

/** A default is no value of the new type yet, so it goes first and comes back last. */
function retypeSql(column: string, old: Field, field: Field): string[] {
  checkIdentityKept(old, field)
  const expression = defaultExpression(field)
  return [
    ...(defaultExpression(old) === undefined ? [] : [`${column} drop default`]),
    `${column} type ${field.pgType} using ${quoteName(field.name)}::${field.pgType}`,
    ...(expression === undefined ? [] : [`${column} set default ${expression}`]),
  ]
}

function changeDefaultSql(column: string, old: Field, field: Field): string[] {
  checkIdentityKept(old, field)
  const [before, after] = [defaultExpression(old), defaultExpression(field)]
  if (before === after) return []
  return [after === undefined ? `${column} drop default` : `${column} set default ${after}`]
}

function checkIdentityKept(old: Field, field: Field): void {
  if ((old.default?.kind === 'autoincrement') === (field.default?.kind === 'autoincrement')) return
  throw new AppError(400, `field ${field.name}: AUTOINCREMENT can only be chosen when the field is created`, {
    code: 'INVALID_SCHEMA',
  })
}

function changeUniqueSql(collection: Collection, field: Field): string {
  const name = uniqueName(collection, field)
  return field.unique
    ? `${alter(collection)} add constraint ${name} unique (${quoteName(field.name)})`
    : `${alter(collection)} drop constraint ${name}`
}

function alter(collection: Collection): string {
  return `alter table ${quoteName(collection.name)}`
}

function uniqueName(collection: Collection, field: Field): string {
  return quoteName(shortened(`${collection.name}_${field.name}_key`))
}

function checkName(collection: Collection, field: Field): string {
  return quoteName(shortened(`${collection.name}_${field.name}_check`))
}
