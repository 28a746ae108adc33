import { Type } from '../../../../adapters/typebox.ts'
import { Text } from '../../../../http/shapes.ts'
import { Collection, Members, optional, Page, type Tool, tool } from '../tool.ts'

const Definition = Members(
  'A definition: its fields, relationships and indexes by name (see svc_get_schema of another).',
  {
    fields: { name: { type: 'String', allowNull: false }, price: { type: 'Decimal' } },
  },
)
const Relationship = Members('A relationship: type, name, target and what belongs to it.', {
  type: 'M2O',
  name: 'maker',
  target: 'maker',
  alias: 'products',
})
const dryRun = optional(Type.Boolean({ description: 'Changes nothing and answers what would be done.' }))
const drop = optional(
  Type.Boolean({
    description:
      'Drops the parts that the definition leaves out, with their values. Without it such a change is refused.',
  }),
)
const Source = Text('product', { minLength: 1, description: 'The collection that the relationship belongs to.' })

const definitions: readonly Tool[] = [
  tool({
    name: 'svc_list_schemas',
    title: 'List collections',
    description: 'The collections with their definitions: what there is to ask for.',
    group: 'read',
    input: {
      search: optional(Text('prod', { description: 'A part of the name.' })),
      page: Page,
      limit: Type.Integer({ minimum: 1, maximum: 100, default: 10, description: 'How many at most, up to 100.' }),
      sort: Text('collectionName:asc', { default: 'collectionName:asc', description: 'collectionName:asc or :desc.' }),
    },
    route: 'GET /schemas',
    call: (query) => ({ query }),
  }),
  tool({
    name: 'svc_get_schema',
    title: 'Read the definition of a collection',
    description: 'The fields, relationships and indexes of a collection.',
    group: 'read',
    input: { collection: Collection },
    route: 'GET /schemas/:collection',
    call: (params) => ({ params }),
  }),
  tool({
    name: 'svc_create_schema',
    title: 'Create a collection',
    description: 'Creates a collection, which is a table with its routes.',
    group: 'create',
    input: { collection: Collection, schema: Definition, dryRun },
    route: 'POST /schemas',
    call: ({ collection: collectionName, schema, dryRun }) => ({ body: { collectionName, schema }, query: { dryRun } }),
  }),
  tool({
    name: 'svc_update_schema',
    title: 'Change a collection',
    description:
      'Changes the definition of a collection. Entries that it leaves out stay; those that are null go, with `drop`.',
    group: 'update',
    input: { collection: Collection, schema: Definition, drop, dryRun },
    route: 'PATCH /schemas/:collection',
    call: ({ collection, schema, ...query }) => ({ params: { collection }, body: { schema }, query }),
  }),
  tool({
    name: 'svc_delete_schema',
    title: 'Delete a collection',
    description: 'Deletes a collection with all its items. Ask for a dry run first.',
    group: 'delete',
    input: { collection: Collection, dryRun },
    route: 'DELETE /schemas/:collection',
    call: ({ collection, dryRun }) => ({ params: { collection }, query: { dryRun } }),
  }),
  tool({
    name: 'svc_export_schemas',
    title: 'Export all definitions',
    description: 'The definitions of all collections, as svc_import_schemas takes them.',
    group: 'read',
    input: {},
    route: 'GET /schemas/export',
    call: () => ({}),
  }),
  tool({
    name: 'svc_import_schemas',
    title: 'Import definitions',
    description: 'Creates and changes collections, all or none. Collections that are not named stay.',
    group: 'update',
    input: {
      schemas: Type.Array(
        Type.Object({ collectionName: Text('product'), schema: Definition }, { additionalProperties: true }),
        { minItems: 1, description: 'Definitions with their names.' },
      ),
      drop,
      dryRun,
    },
    route: 'POST /schemas/import',
    call: ({ schemas, ...query }) => ({ body: { version: '1.0', schemas }, query }),
  }),
]

const parts: readonly Tool[] = [
  tool({
    name: 'svc_add_index',
    title: 'Add an index',
    description: 'Adds an index to a collection.',
    group: 'create',
    input: {
      collection: Collection,
      indexDefinition: Members('Its name, fields and options.', { name: 'product_name', fields: ['name'] }),
      dryRun,
    },
    route: 'POST /schemas/:collection/indexes',
    call: ({ collection, indexDefinition, dryRun }) => ({
      params: { collection },
      body: indexDefinition,
      query: { dryRun },
    }),
  }),
  tool({
    name: 'svc_remove_index',
    title: 'Remove an index',
    description: 'Removes an index of a collection by its name.',
    group: 'delete',
    input: { collection: Collection, indexName: Text('product_name', { minLength: 1 }), dryRun },
    route: 'DELETE /schemas/:collection/indexes/:name',
    call: ({ collection, indexName: name, dryRun }) => ({ params: { collection, name }, query: { dryRun } }),
  }),
  tool({
    name: 'svc_create_relationship',
    title: 'Create a relationship',
    description: 'Relates a collection to another one.',
    group: 'create',
    input: { sourceCollection: Source, relationshipData: Relationship, dryRun },
    route: 'POST /schemas/:collection/relationships',
    call: ({ sourceCollection: collection, relationshipData: body, dryRun }) => ({
      params: { collection },
      body,
      query: { dryRun },
    }),
  }),
  tool({
    name: 'svc_update_relationship',
    title: 'Change a relationship',
    description: 'Changes the alias, description, showAs, onDelete or onUpdate of a relationship.',
    group: 'update',
    input: {
      sourceCollection: Source,
      relationshipName: Text('maker', { minLength: 1 }),
      relationshipData: Relationship,
      dryRun,
    },
    route: 'PATCH /schemas/:collection/relationships/:field',
    call: ({ sourceCollection: collection, relationshipName: field, relationshipData: body, dryRun }) => ({
      params: { collection, field },
      body,
      query: { dryRun },
    }),
  }),
  tool({
    name: 'svc_delete_relationship',
    title: 'Delete a relationship',
    description: 'Deletes a relationship with the keys that it stores.',
    group: 'delete',
    input: { sourceCollection: Source, fieldName: Text('maker', { minLength: 1 }), dryRun },
    route: 'DELETE /schemas/:collection/relationships/:field',
    call: ({ sourceCollection: collection, fieldName: field, dryRun }) => ({
      params: { collection, field },
      query: { dryRun },
    }),
  }),
]

export const schemaTools: readonly Tool[] = [...definitions, ...parts]
