import type { TProperties } from 'typebox'
import { Type } from '../../../adapters/typebox.ts'
import { membersOf } from '../../../catalog/shape.ts'
import type { ShapeName } from '../../../catalog/synonyms.ts'
import { route } from '../../../http/route.ts'
import { Anything, badQuery, Count, Nothing, NullableText, OneOf, Text } from '../../../http/shapes.ts'
import { CollectionParams, fileBody } from '../items/items.ts'

const tag = 'Schemas'

/** Any other word for one of them must not pass as false. */
const isOn = (name: string, description: string) =>
  Type.Optional(Type.Boolean({ default: false, description, refusal: badQuery(`${name} is true or false`) }))
const dryRun = isOn('dryRun', 'Only says what would be done.')
const migration = Type.Optional(
  Text('add_country_code', {
    description:
      'Changes nothing, and writes a migration of this name that does it and its reverse into MIGRATIONS_DIR; with dryRun it is only answered.',
    refusal: badQuery('migration is the name of a new migration'),
  }),
)
const ChangeQuery = Type.Object({ dryRun, migration })
const WholeQuery = Type.Object({
  drop: isOn('drop', 'Drops the parts that the definition leaves out, with their values.'),
  alter: isOn(
    'alter',
    'Agrees that another type rounds, cuts off, replaces or rewrites stored values, and that deleted rows come back without `paranoid`.',
  ),
  dryRun,
  migration,
})
/** Of imports, which are files themselves. */
const ImportQuery = Type.Object({ drop: WholeQuery.properties.drop, alter: WholeQuery.properties.alter, dryRun })

const once = badQuery('a parameter is repeated')
const page = badQuery('page and limit are whole numbers from 1; limit=-1 is all')
export const SchemaListQuery = Type.Object({
  search: Type.Optional(Text('prod', { description: 'A part of the name.', refusal: once })),
  sort: Type.Optional(
    Text('createdAt:desc', {
      description: '`collectionName`, `createdAt` or `updatedAt`; `-` before it or `:desc` after it for descending.',
      refusal: once,
    }),
  ),
  brief: isOn('brief', 'Of each collection only its name and its description.'),
  page: Type.Optional(Type.Integer({ minimum: 1, maximum: 999_999_999, examples: [1], refusal: page })),
  limit: Type.Optional(
    Type.Integer({ minimum: -1, maximum: 999_999_999, not: { const: 0 }, examples: [50], refusal: page }),
  ),
})

/** The members of a definition; the catalog checks them. */
const described = (shape: ShapeName): TProperties =>
  Object.fromEntries(
    Object.entries(membersOf(shape)).map(([name, { description, expects }]) => [
      name,
      Type.Optional(Type.Unknown({ description: expects === undefined ? description : `${description} (${expects})` })),
    ]),
  )
const aSchema = {
  timestamps: true,
  fields: {
    id: { type: 'UUID', primaryKey: true, defaultValue: { type: 'UUIDV4' } },
    name: { type: 'String', allowNull: false },
  },
}

const SchemaShape = Type.Object(described('collection'), {
  additionalProperties: true,
  description: 'A definition: fields and relations by name, indexes, and what the collection does by itself.',
  examples: [aSchema],
  refusal: 'schema must be an object',
})
const noObject = 'Request body must be an object'

const CreateBody = Type.Object(
  { schema: SchemaShape, collectionName: Anything('products', { description: 'Letters, digits and underscore.' }) },
  { refusal: noObject },
)
const ChangeBody = Type.Object(
  {
    schema: SchemaShape,
    collectionName: Type.Optional(Anything('products', { description: 'If given, the one of the path.' })),
  },
  { refusal: noObject },
)
const IndexBody = Type.Object(described('index'), {
  additionalProperties: true,
  examples: [{ fields: ['name'], unique: true }],
  refusal: noObject,
})
const RelationshipBody = Type.Object(described('relationship'), {
  additionalProperties: true,
  examples: [{ type: 'M2O', name: 'maker', target: 'makers', alias: 'products' }],
  refusal: noObject,
})

const Definition = Type.Object({ collectionName: Text('products'), schema: SchemaShape })

const loss = {
  collection: Text('products'),
  field: Type.Optional(Text('price')),
  relation: Type.Optional(Text('maker')),
  index: Type.Optional(Text('products_name_idx')),
  constraint: Type.Optional(Text('products_name_key')),
  rows: Type.Optional(Count(42)),
  values: Type.Optional(Count(40)),
}
const Dropped = Type.Array(Type.Object(loss), { description: 'The dropped parts, and how much they held.' })
const Altered = Type.Array(
  Type.Object({
    collection: Text('products'),
    field: Type.Optional(Text('price')),
    values: Type.Optional(Count(7)),
    restored: Type.Optional(Count(3, { description: 'Deleted rows that come back without `paranoid`.' })),
  }),
  { description: 'Values that another type rounds, cuts off, replaces or rewrites, and deleted rows that come back.' },
)
const Warnings = Type.Optional(
  Type.Array(
    Type.Object({
      collection: Text('products'),
      field: Text('id'),
      message: Text('has no default any more, so every new item must have a value for it'),
    }),
    { description: 'Effects that the change has, and that its sender may not have meant.' },
  ),
)
const Finding = Type.Object({
  rule: Text('index-not-concurrent'),
  object: Text('products'),
  lock: Text('SHARE'),
  why: Text('Writes wait until the whole table is indexed.'),
  safeWay: Text('CREATE INDEX CONCURRENTLY, in a script that runs without a transaction.'),
  statement: Count(1),
  sql: Text('create index on products (name)'),
})
/** Of dry runs. */
const preview = {
  dryRun: Type.Optional(Type.Literal(true)),
  migration: Type.Optional(
    Text('migrations/20241224103000_add_country_code.ts', { description: 'The file that was written instead.' }),
  ),
  script: Type.Optional(Text("export const name = 'add country code'", { description: 'Its text, in a dry run.' })),
  sql: Type.Optional(Type.Array(Text('alter table "products" add column "name" text'))),
  findings: Type.Optional(Type.Array(Finding, { description: 'Statements that would stop traffic.' })),
}
const Done = Type.Object({
  message: Text('Schema updated successfully'),
  changes: Type.Optional(
    Type.Array(Type.Object({ collection: Text('products'), change: OneOf(['create', 'update', 'delete']) })),
  ),
  dropped: Dropped,
  altered: Altered,
  warnings: Warnings,
  ...preview,
})

const RelationshipParams = Type.Object({ ...CollectionParams.properties, field: Text('maker') })

export const listRoute = route({
  summary: 'List the definitions of collections',
  scope: 'read',
  tag,
  query: SchemaListQuery,
  response: {
    200: Type.Object({
      data: Type.Array(Definition),
      totalCount: Count(1),
      pagination: Type.Optional(
        Type.Object({
          currentPage: Count(1),
          totalPages: Count(1),
          limit: Count(50),
          hasNextPage: Type.Boolean(),
          hasPrevPage: Type.Boolean(),
          nextPage: Type.Union([Count(2), Type.Null()]),
          prevPage: Type.Union([Count(1), Type.Null()]),
        }),
      ),
    }),
  },
  sendsText: true,
})
export const readRoute = route({
  summary: 'Read the definition of a collection',
  scope: 'read',
  tag,
  params: CollectionParams,
  response: { 200: Type.Object({ data: Definition }) },
  sendsText: true,
})
export const createRoute = route({
  summary: 'Create a collection',
  scope: 'admin',
  tag,
  query: ChangeQuery,
  body: CreateBody,
  response: { 200: Done, 201: Done },
  sendsText: true,
})
export const changeRoute = route({
  summary: 'Change a collection',
  scope: 'admin',
  description: 'Entries that the definition leaves out stay; those that are null go.',
  tag,
  params: CollectionParams,
  query: WholeQuery,
  body: ChangeBody,
  response: { 200: Done },
})
export const removeRoute = route({
  summary: 'Delete a collection with its items',
  scope: 'admin',
  tag,
  params: CollectionParams,
  query: ChangeQuery,
  response: { 200: Done },
})
export const removeFieldRoute = route({
  summary: 'Delete a field with its values, or a relation',
  scope: 'admin',
  tag,
  params: RelationshipParams,
  query: ChangeQuery,
  response: { 200: Done },
})
export const addIndexRoute = route({
  summary: 'Add an index',
  scope: 'admin',
  tag,
  params: CollectionParams,
  query: ChangeQuery,
  body: IndexBody,
  response: { 200: Done, 201: Done },
  sendsText: true,
})
export const removeIndexRoute = route({
  summary: 'Remove an index',
  scope: 'admin',
  tag,
  params: Type.Object({ ...CollectionParams.properties, name: Text('products_name_idx') }),
  query: ChangeQuery,
  response: { 200: Done },
})
export const migrateIndexesRoute = route({
  summary: 'Create the indexes that tables lack',
  scope: 'admin',
  tag,
  response: {
    200: Type.Object({
      message: Text('Foreign key index migration completed'),
      summary: Type.Object({ created: Count(1), skipped: Count(12), errors: Count(0) }),
      details: Type.Array(
        Type.Object({
          collection: Text('products'),
          index: Text('products_name_idx'),
          status: OneOf(['created', 'skipped', 'error']),
          error: Type.Optional(Text('the table is in use')),
        }),
      ),
    }),
  },
})
export const addRelationshipRoute = route({
  summary: 'Create a relationship between collections',
  scope: 'admin',
  tag,
  params: CollectionParams,
  query: ChangeQuery,
  body: RelationshipBody,
  response: { 200: Done, 201: Done },
  sendsText: true,
})
export const changeRelationshipRoute = route({
  summary: 'Change a relationship',
  scope: 'admin',
  description: 'Its alias, description, showAs, onDelete and onUpdate.',
  tag,
  params: RelationshipParams,
  query: ChangeQuery,
  body: RelationshipBody,
  response: { 200: Done },
})
export const removeRelationshipRoute = route({
  summary: 'Delete a relationship',
  scope: 'admin',
  tag,
  params: RelationshipParams,
  query: ChangeQuery,
  response: { 200: Done },
})

const Exported = Type.Object({
  version: Text('1.0'),
  timestamp: Text('2026-03-14T09:26:53.589Z'),
  schemas: Type.Array(
    Type.Object({
      ...Definition.properties,
      createdAt: Text('2026-03-14T09:26:53.589Z'),
      updatedAt: Text('2026-03-14T09:26:53.589Z'),
    }),
  ),
})
const problem = { collectionName: NullableText('products'), error: Text('fields is required') }
const Imported = Type.Object({
  message: Text('Schema import completed'),
  changes: Type.Object({
    created: Type.Array(Text('products')),
    updated: Type.Array(Text('orders')),
    unchanged: Type.Array(Text('makers')),
    deleted: Type.Array(Text('drafts')),
    errors: Type.Array(Type.Object(problem)),
  }),
  dropped: Dropped,
  altered: Altered,
  warnings: Warnings,
  ...preview,
})

export const exportRoute = route({
  summary: 'Download all definitions as a file',
  scope: 'admin',
  tag,
  response: { 200: Exported },
  sendsText: true,
})
export const typesRoute = route({
  summary: 'Download the collections as TypeScript',
  description: 'The types that `npx daybook types` writes for the client. The answer has an ETag.',
  tag,
  scope: 'admin',
  response: { 200: Text('export type Schema = {}', { contentMediaType: 'text/plain' }), 304: Nothing },
  sendsText: true,
})
export const previewRoute = route({
  summary: 'Show what an import of definitions would change',
  scope: 'admin',
  tag,
  query: ImportQuery,
  body: fileBody('schema'),
  response: {
    200: Type.Object({
      importVersion: Anything('1.0'),
      importTimestamp: Anything('2026-03-14T09:26:53.589Z'),
      changes: Type.Object({
        new: Type.Array(
          Type.Object({
            collectionName: Text('products'),
            details: Type.Object({
              fields: Type.Array(Text('name')),
              relations: Type.Array(Text('maker')),
              indexes: Count(1),
            }),
          }),
        ),
        modified: Type.Array(
          Type.Object({ collectionName: Text('orders'), differences: Type.Array(Text('field price added')) }),
        ),
        deleted: Type.Array(Text('drafts')),
        unchanged: Type.Array(Text('makers')),
        errors: Type.Optional(Type.Array(Type.Object(problem))),
      }),
    }),
  },
  readElsewhere: 'body',
  sendsText: true,
})
export const importFileRoute = route({
  summary: 'Import definitions from a file',
  scope: 'admin',
  description: 'All of them or none.',
  tag,
  query: ImportQuery,
  body: fileBody('schema'),
  response: { 200: Imported },
  readElsewhere: 'body',
  sendsText: true,
})
export const importRoute = route({
  summary: 'Import definitions',
  scope: 'admin',
  description: 'All of them or none.',
  tag,
  query: ImportQuery,
  body: Exported,
  response: { 200: Imported },
  readElsewhere: 'body',
  sendsText: true,
})
