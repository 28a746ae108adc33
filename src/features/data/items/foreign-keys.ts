import type { Catalog, Collection, Field, Relation } from '../../../catalog/catalog.ts'
import { readParam, type ValueType } from '../../../catalog/values.ts'
import { AppError } from '../../../errors.ts'
import { oncePer } from '../../../language/once.ts'
import { isObject, member } from '../../../query/guards.ts'

/**
 * Which row a payload means that names a foreign key more than once: by its column (`author_Id`), by its relation
 * (`author`), and by what says which collection it points at. A row that is sent back as it was read names it so. The order
 * of the members decides nothing.
 */

/** A member of a payload, or the two columns of a many-to-any key, and the row that it names. */
type KeyClaim = {
  /** Names of the members. */
  readonly members: readonly string[]
  /** Undefined for the columns. */
  readonly relation: Relation | undefined
  readonly target: Target
}

type Target = {
  /** The value of the foreign key as text; null for no row, undefined where it is not said. */
  readonly key: string | null | undefined
  /** The primary key of a row that is given with more than its key. */
  readonly row: string | undefined
  /** Which collection a many-to-any key points at; undefined where it is not said. */
  readonly kind: string | null | undefined
  readonly form: 'key' | 'row' | 'new row'
}

/** A foreign key that members of a payload name differently. */
export type KeyContest = {
  readonly foreignKey: string
  /** The column that says which collection it points at. */
  readonly discriminator: string | undefined
  readonly relations: readonly Relation[]
  readonly claims: readonly KeyClaim[]
}

/** A foreign key as it is stored, and what its relations show of it. */
export type StoredKey = {
  readonly key: string | null
  /** The collection that the column of a many-to-any key names. */
  readonly kind: string | null
  /** By relation the primary key of the row that it leads to, and whether the caller is shown it: otherwise it reads null. */
  readonly rows: Readonly<Record<string, { readonly row: string | null; readonly isShown: boolean }>>
}

/** By foreign key; `missing` where there is no row that the caller may change, which its statement then says. */
export type StoredKeys = ReadonlyMap<string, StoredKey> | 'missing'

/** A member that does not set its foreign key is left out, or only what is in its row is written. */
type Aside = 'dropped' | 'beside'

/** A decided payload: members that do not set their foreign key, and the keys that two members name differently. */
export type KeyDecisions = {
  readonly aside: ReadonlyMap<string, Aside>
  readonly conflicts: readonly { readonly relation: Relation; readonly message: string }[]
}

type Place = { readonly catalog: Catalog; readonly collection: Collection }
type Members = Readonly<Record<string, unknown>>

/** The foreign keys that a payload names in more than one way. */
export function contestsIn(place: Place, payload: Members): readonly KeyContest[] {
  let contests: KeyContest[] | undefined
  for (const key of namedKeys(place.collection)) {
    if (!isNamedTwice(key, payload)) continue
    contests ??= []
    contests.push({ ...key, claims: claimsOf(place, key, payload) })
  }
  return contests ?? noContests
}

const noContests: readonly never[] = []

/** Whether the members of a contest name different rows, so that the stored row has to tell which of them is meant. */
export const isOpen = ({ claims }: KeyContest): boolean =>
  claims.some(({ target }) => !agree(target, claims[0]!.target))

/** Decides contests; without `stored` as for new rows. */
export function decideKeys(contests: readonly KeyContest[], stored: StoredKeys = new Map()): KeyDecisions {
  const aside = new Map<string, Aside>()
  const conflicts: KeyDecisions['conflicts'][number][] = []
  for (const contest of contests) {
    const meant = stored === 'missing' ? best(contest.claims) : meantBy(contest.claims, stored.get(contest.foreignKey))
    if ('differing' in meant) conflicts.push(conflictOf(contest, meant.differing))
    else for (const claim of contest.claims) if (claim !== meant) setAside(aside, claim)
  }
  return { aside, conflicts }
}

/**
 * The claim that is meant. Of an existing row the one that says something else than it does: the others came back as they
 * were read. Of a new row the one that names a row at all. `differing` where several of those name different rows.
 */
function meantBy(
  claims: readonly KeyClaim[],
  stored: StoredKey | undefined,
): KeyClaim | { readonly differing: readonly KeyClaim[] } {
  const said =
    stored === undefined
      ? claims.filter(({ target }) => target.key !== null)
      : withoutClears(claims.filter((claim) => !isAsRead(claim, stored)))
  if (said.length === 0) return best(claims)
  const first = best(said)
  return said.every(({ target }) => agree(target, first.target)) ? first : { differing: said }
}

/** Of the relations that share a many-to-any key all but one are empty, so that another one has a row says the same. */
function withoutClears(claims: readonly KeyClaim[]): readonly KeyClaim[] {
  const isFilled = claims.some(({ relation, target }) => relation !== undefined && target.key !== null)
  return isFilled
    ? claims.filter(({ relation, target }) => relation?.discriminator === undefined || target.key !== null)
    : claims
}

/** Whether the claim says of a row what a read of it does. */
function isAsRead({ relation, target: { key, row, kind, form } }: KeyClaim, stored: StoredKey): boolean {
  if (form === 'new row') return false
  if (relation !== undefined && key === null) return stored.rows[relation.name]?.isShown !== true
  const isSameKind = kind === undefined || kind === stored.kind
  const isSameRow = form === 'key' ? key === undefined || key === stored.key : isStoredRow(relation, row, stored)
  return isSameKind && isSameRow
}

const isStoredRow = (relation: Relation | undefined, row: string | undefined, { rows }: StoredKey): boolean =>
  relation === undefined ? Object.values(rows).some((shown) => shown.row === row) : rows[relation.name]?.row === row

/** Whether two targets are known to be the same row. */
function agree(one: Target, other: Target): boolean {
  if (one === other) return true
  if (one.kind !== undefined && other.kind !== undefined && one.kind !== other.kind) return false
  if (!namesRow(one) || !namesRow(other)) return true
  if (one.form === 'new row' || other.form === 'new row') return false
  if (one.key !== undefined && other.key !== undefined) return one.key === other.key
  return one.row !== undefined && one.row === other.row
}

const namesRow = ({ key, row, form }: Target): boolean => key !== undefined || row !== undefined || form !== 'key'

/** The claim that says most: a row also has what is to be written into it. */
const best = (claims: readonly KeyClaim[]): KeyClaim =>
  claims.reduce((most, claim) => (weightOf(claim) > weightOf(most) ? claim : most))

function weightOf({ relation, target: { key, form, kind } }: KeyClaim): number {
  if (key === null) return 0
  if (form !== 'key') return 4
  if (relation !== undefined) return 2
  return key === undefined || kind === undefined ? 1 : 3
}

function setAside(aside: Map<string, Aside>, { members, target }: KeyClaim): void {
  for (const name of members) aside.set(name, target.form === 'row' ? 'beside' : 'dropped')
}

function conflictOf({ relations }: KeyContest, claims: readonly KeyClaim[]): KeyDecisions['conflicts'][number] {
  const names = claims.map(({ members }) => members[0]!)
  const relation = claims.find((claim) => claim.relation !== undefined)?.relation ?? relations[0]!
  return { relation, message: `${names.join(' and ')} name different rows` }
}

type NamedKey = Omit<KeyContest, 'claims'>

/** The foreign keys that a payload can name by a relation. */
const namedKeys = oncePer((collection: Collection): readonly NamedKey[] =>
  [...relationsByKey(collection)].flatMap(([foreignKey, all]) => {
    const relations = all.filter(({ name }) => !collection.fields.has(name))
    const discriminator = relations.find((relation) => relation.discriminator !== undefined)?.discriminator?.column
    return relations.length === 0 ? [] : [{ foreignKey, discriminator, relations }]
  }),
)

function isNamedTwice({ foreignKey, discriminator, relations }: NamedKey, payload: Members): boolean {
  let named = 0
  for (const { name } of relations) if (member(payload, name) !== undefined) named += 1
  if (named !== 1) return named > 1
  const isGiven = (column: string | undefined) => column !== undefined && member(payload, column) !== undefined
  return isGiven(foreignKey) || isGiven(discriminator)
}

function claimsOf(place: Place, key: NamedKey, payload: Members): readonly KeyClaim[] {
  const field = place.collection.fields.get(key.foreignKey)!
  const byRelation = key.relations.flatMap((relation): KeyClaim[] => {
    const value = member(payload, relation.name)
    if (value === undefined) return []
    return [{ members: [relation.name], relation, target: targetOf(place, relation, field, value) }]
  })
  return [...columnClaim(place, key, field, payload), ...byRelation]
}

function columnClaim(
  place: Place,
  { foreignKey, discriminator }: NamedKey,
  field: Field,
  payload: Members,
): readonly KeyClaim[] {
  const value = member(payload, foreignKey)
  const given = discriminator === undefined ? null : member(payload, discriminator)
  const kind = given === undefined || given === null ? given : String(given)
  if (value === undefined && (discriminator === undefined || kind === undefined)) return []
  const relation = isObject(value) ? relationOfColumn(place.collection, foreignKey, payload) : undefined
  const target: Target =
    relation === undefined
      ? { key: value === undefined ? undefined : keyText(field, value), row: undefined, kind, form: 'key' }
      : { ...targetOf(place, relation, field, value), kind }
  const columns = [foreignKey, ...(discriminator === undefined ? [] : [discriminator])]
  return [{ members: columns.filter((name) => member(payload, name) !== undefined), relation: undefined, target }]
}

/** The row that a value of a to-one relation names: a key, a row with its key, or one to create. */
function targetOf({ catalog }: Place, relation: Relation, field: Field, value: unknown): Target {
  const kind = value === null ? undefined : relation.discriminator?.value
  const id = idAlone(relation, value)
  if (!isObject(value) || id !== undefined)
    return { key: keyText(field, id === undefined ? value : id), row: undefined, kind, form: 'key' }
  const { primaryKey } = catalog.collections.get(relation.target)!
  const row = member(value, primaryKey.name) ?? undefined
  const key = member(value, relation.targetKey) ?? undefined
  return {
    key: row === undefined || key === undefined ? undefined : keyText(field, key)!,
    row: row === undefined ? undefined : keyText(primaryKey, row)!,
    kind,
    form: row === undefined ? 'new row' : 'row',
  }
}

/** A key as the database writes it; what cannot be one as it is, for the reading of the payload to refuse. */
function keyText(field: Field, value: unknown): string | null {
  if (value === null) return null
  try {
    const text = String(readParam(value, field as ValueType, field.name))
    return field.kind === 'uuid' ? text.toLowerCase() : text
  } catch (error) {
    if (!(error instanceof AppError)) throw error
    return JSON.stringify(value)
  }
}

/** The key that a value of a to-one relation names without saying more of the row: `5`, `{id: 5}`, null. */
export function idAlone({ targetKey }: Relation, value: unknown): unknown {
  if (!isObject(value)) return Array.isArray(value) ? undefined : value
  const [first, ...more] = Object.entries(value)
  return first?.[0] === targetKey && more.length === 0 && !isObject(first[1]) ? (first[1] ?? undefined) : undefined
}

/** The relation that a column is the foreign key of; of a many-to-any junction, the one its row's discriminator names. */
export function relationOfColumn(collection: Collection, column: string, payload: Members): Relation | undefined {
  const candidates = relationsByKey(collection).get(column)
  return candidates?.find(({ discriminator }) =>
    discriminator === undefined
      ? true
      : Object.hasOwn(payload, discriminator.column) && payload[discriminator.column] === discriminator.value,
  )
}

/** A foreign key that points into one of several collections, which another column of its row names. */
export type AnyKey = {
  readonly foreignKey: string
  readonly discriminator: string
  /** By what that column holds. */
  readonly relations: ReadonlyMap<string, Relation>
}

export const anyKeys = oncePer((collection: Collection): readonly AnyKey[] =>
  [...relationsByKey(collection)].flatMap(([foreignKey, all]) => {
    const scoped = all.flatMap((relation) => (relation.discriminator === undefined ? [] : [relation]))
    const discriminator = scoped[0]?.discriminator?.column
    if (discriminator === undefined) return []
    return [{ foreignKey, discriminator, relations: new Map(scoped.map((one) => [one.discriminator!.value, one])) }]
  }),
)

/** The to-one relations by the name of their foreign key. */
export const relationsByKey = oncePer((collection: Collection): ReadonlyMap<string, readonly Relation[]> => {
  const own = [...collection.relations.values()].filter(({ kind }) => kind === 'belongsTo')
  return Map.groupBy(own, ({ foreignKey }) => foreignKey)
})
