/**
 * The catalog: every collection, compiled from its stored definition into one immutable value that is swapped as a
 * whole. Queries, validation, DDL, redaction and the API description are functions of it.
 */
import { oncePer } from '../language/once.ts'

/** The stored JSON of a collection, kept as it was written. */
export type CollectionDefinition = { readonly collectionName: string; readonly schema: SchemaJson }

export type SchemaJson = {
  readonly name?: string
  readonly timestamps?: boolean
  readonly paranoid?: boolean
  readonly usertrack?: boolean
  readonly sortEnabled?: boolean
  readonly isJunction?: boolean
  readonly cache?: boolean | { readonly ttl: number }
  readonly realtime?: boolean | { enabled?: boolean; actions?: RealtimeAction[]; replicaIdentityFull?: boolean }
  readonly fields: Readonly<Record<string, FieldJson>>
  readonly indexes?: readonly IndexJson[]
  readonly constraints?: readonly ConstraintJson[]
  readonly [other: string]: unknown
}

export type RealtimeAction = 'insert' | 'update' | 'delete'
export type FieldJson = Readonly<Record<string, unknown>>
export type IndexJson = {
  readonly name?: string
  readonly fields: readonly string[]
  readonly unique?: boolean
  readonly nullsNotDistinct?: boolean
  readonly type?: IndexMethod
}
/** A rule of the table beyond its fields: a CHECK over an SQL expression, or several fields unique together. */
type ConstraintJson =
  | { readonly type: 'check'; readonly name: string; readonly expression: string }
  | {
      readonly type: 'unique'
      readonly name?: string
      readonly fields: readonly string[]
      readonly nullsNotDistinct?: boolean
    }
export type IndexMethod = 'btree' | 'hash' | 'gin' | 'gist'

/**
 * How values of a field behave: what JSON form they have, which operators apply, how they are cast. Several type
 * names share a kind (String, Text and HTML are all `text`).
 */
export type Kind =
  | 'text'
  | 'integer'
  | 'bigint'
  | 'decimal'
  | 'float'
  | 'boolean'
  | 'datetime'
  | 'datetime_no_tz'
  | 'date'
  | 'time'
  | 'time_no_tz'
  | 'json'
  | 'uuid'
  | 'enum'
  | 'array'
  | 'range'
  | 'geometry'
  | 'geography'
  | 'vector'

export type Default =
  | { readonly kind: 'literal'; readonly value: unknown }
  | { readonly kind: 'uuid' | 'suid' | 'token' | 'now' | 'autoincrement' | 'current_user' | 'current_tenant' }
  | { readonly kind: 'sql'; readonly expression: string }

/** One column. `name` is both the column's and the API's name. */
export type Field = {
  readonly name: string
  /** The type's name in definitions, e.g. `DateTime`. */
  readonly type: string
  readonly kind: Kind
  /** Complete PostgreSQL type, e.g. `numeric(10,2)`, `timestamptz`, `text[]`. */
  readonly pgType: string
  /** Kind of an array's elements or a range's bounds. */
  readonly element: Kind | undefined
  readonly nullable: boolean
  readonly primaryKey: boolean
  readonly unique: boolean
  readonly default: Default | undefined
  /** Expression of a VIRTUAL column; such a field is never written. */
  readonly generated: string | undefined
  readonly enumValues: readonly string[] | undefined
  /** Never returned, filtered, sorted or searched by anybody, redacted in the log. */
  readonly hidden: boolean
  /** A change of only such fields appends nothing to the log. */
  readonly unlogged: boolean
  readonly validate: Readonly<Record<string, unknown>> | undefined
  readonly systemGenerated: boolean
  /**
   * Readers get an SQL function of these columns of the row instead of the stored value. Such a field can be
   * selected, not filtered, sorted or grouped by.
   */
  readonly shownBy?: { readonly function: string; readonly arguments: readonly string[] } | undefined
  /** The field whose column is read for this one, which has none of its own. */
  readonly sameAs?: string | undefined
}

export type RelationKind = 'belongsTo' | 'hasOne' | 'hasMany' | 'belongsToMany' | 'polymorphic'

/**
 * A relation from a collection (the source) to `target`.
 * belongsTo: source.foreignKey = target.targetKey. hasOne, hasMany: target.foreignKey = source primary key.
 * belongsToMany: through.foreignKey = source primary key and through.otherKey = target primary key.
 * polymorphic: target is the junction of a many-to-any relation, otherwise as hasMany; `tables` are the collections its rows may point at.
 */
export type Relation = {
  readonly name: string
  readonly kind: RelationKind
  readonly target: string
  readonly foreignKey: string
  readonly targetKey: string
  readonly through: string | undefined
  readonly otherKey: string | undefined
  readonly tables: readonly string[]
  /**
   * Only around a many-to-any junction: the value its `collection` column must have for a row to count. On the
   * junction's belongsTo the row then points at `target`; on the hasMany of a target the row then points at the source.
   * Such relations have no database constraint.
   */
  readonly discriminator: { readonly column: string; readonly value: string } | undefined
  readonly onDelete: ReferentialAction
  readonly onUpdate: ReferentialAction
  /** Whether a foreign key constraint exists in the database. */
  readonly constraint: boolean
}

export type ReferentialAction = 'CASCADE' | 'RESTRICT' | 'SET NULL' | 'NO ACTION'

export type Index = {
  readonly name: string
  readonly fields: readonly string[]
  readonly unique: boolean
  readonly nullsNotDistinct: boolean
  /** Only rows in which these fields have values are in the index. */
  readonly whereNotNull: readonly string[]
  readonly method: IndexMethod
}

export type Check = { readonly name: string; readonly expression: string }

export type Collection = {
  readonly name: string
  /** True for `svc_` collections. */
  readonly system: boolean
  readonly primaryKey: Field
  /** In column order. */
  readonly fields: ReadonlyMap<string, Field>
  readonly relations: ReadonlyMap<string, Relation>
  readonly indexes: readonly Index[]
  readonly timestamps: boolean
  readonly paranoid: boolean
  readonly usertrack: boolean
  readonly sortEnabled: boolean
  /** Whether triggers append its changes to the log. */
  readonly logged: boolean
  readonly realtime: { readonly enabled: boolean; readonly actions: ReadonlySet<RealtimeAction> }
  /** Whether its reads may be cached; `wanted` is undefined where the configuration decides. */
  readonly cache: { readonly wanted: boolean | undefined; readonly ttlSeconds: number | undefined }
  /** False where the generic item routes refuse every write (the log, definitions, migrations). */
  readonly writable: boolean
  readonly definition: CollectionDefinition
}

export type CatalogOptions = {
  /** MULTI_TENANT: every collection but the system's own belongs to tenants. */
  readonly multiTenant?: boolean
}

export type Catalog = {
  /** Changes with every stored definition; compared for equality only. */
  readonly version: string
  readonly collections: ReadonlyMap<string, Collection>
}

/**
 * A collection whose items a table links: its column `foreignKey` holds their keys, with a discriminator only in rows
 * where that column has that value.
 */
export type LinkEnd = {
  readonly collection: Collection
  readonly foreignKey: string
  readonly discriminator: Relation['discriminator']
}

/**
 * The ends of a table between: the collections that have a relation through it, many-to-many or many-to-any. Rows of such
 * a table are part of these items, so their change is one of the items. Empty for every other collection, and for ends
 * that are the system's own or keep no log.
 */
export function linkEnds(catalog: Catalog, { name, fields }: Collection): readonly LinkEnd[] {
  const ends = endsByTable(catalog).get(name) ?? []
  // A column of another kind is no reference: reads through such a relation fail, and writes must not.
  return ends.filter(({ collection, foreignKey }) => fields.get(foreignKey)?.kind === collection.primaryKey.kind)
}

const endsByTable = oncePer((catalog: Catalog): ReadonlyMap<string, readonly LinkEnd[]> => {
  const found = new Map<string, Map<string, LinkEnd>>()
  for (const collection of catalog.collections.values()) {
    if (collection.system || !collection.logged) continue
    for (const relation of collection.relations.values()) {
      const table = tableBetween(catalog, relation)
      if (table === undefined) continue
      const { foreignKey, discriminator } = relation
      const ends = found.get(table) ?? new Map<string, LinkEnd>()
      ends.set(JSON.stringify([collection.name, foreignKey, discriminator]), { collection, foreignKey, discriminator })
      found.set(table, ends)
    }
  }
  return new Map([...found].map(([table, ends]) => [table, [...ends.values()]]))
})

function tableBetween({ collections }: Catalog, { kind, target, through }: Relation): string | undefined {
  if (kind === 'belongsToMany') return through
  const isLink = collections.get(target)?.definition.schema.isJunction === true
  return isLink && kind !== 'belongsTo' ? target : undefined
}
