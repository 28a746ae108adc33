import type { FastifyRequest } from 'fastify'
import type { TProperties, TSchema } from 'typebox'
import { Type } from '../../../adapters/typebox.ts'
import { type CurrentCatalog, withFreshCatalog } from '../../../catalog/store.ts'
import type { Reads } from '../../../db/pools.ts'
import { AppError } from '../../../errors.ts'
import { type App, acceptJsonUploads, actorOf, sendJson, uploadedJson } from '../../../http/http.ts'
import { routesOf } from '../../../http/route.ts'
import {
  Anything,
  badQuery,
  Count,
  GeneralError,
  Id,
  Nothing,
  NullableId,
  NullableText,
  OneOf,
  Said,
  Text,
} from '../../../http/shapes.ts'
import {
  type Change,
  changeItems,
  fileBody,
  ItemParams,
  ListQuery,
  queryOf,
  ReadQuery,
  readList,
  readOne,
  requesterOf,
} from '../../data/items/items.ts'
import { explain } from './explain.ts'
import type { PermissionReads, PermissionWrites } from './holders.ts'
import { impactOf } from './impact.ts'
import { checkRule, checkRuleDelete, type RuleRow, whoMay } from './permissions.ts'
import { storedRow } from './queries.ts'
import { exportPermissions, importPermissions, previewImport } from './transfer.ts'

/** Permissions and named rules are stored in collections of their own, and read like any other. */
const stores = [
  { path: '/permissions', collection: 'svc_Permission', what: 'Permission' },
  { path: '/acls', collection: 'svc_ACL', what: 'ACL' },
] as const

type RuleStore = (typeof stores)[number]

/** Reading follows the ordinary read permission on the collection. */
export function permissionRoutes(app: App, deps: PermissionReads): void {
  for (const store of stores) {
    const { path, collection, what } = store
    app.get(path, listRoute(what), async (request, reply) =>
      sendJson(reply, await readList(deps, request.caller.access, collection, queryOf(request))),
    )
    app.get(`${path}/:id`, readRoute(what), async (request, reply) => {
      const { access } = request.caller
      const { id } = request.params
      // Who sees all of them is told what is not there; anybody else must not learn what is.
      if (access.admin) await stored(deps, store, id)
      return sendJson(reply, await readOne(deps, access, collection, id, queryOf(request)))
    })
  }
}

/** Changes answer the raw row, not wrapped. */
export function permissionAdminRoutes(app: App, deps: PermissionWrites): void {
  for (const store of stores) writeRoutes(app, deps, store)
  app.post('/permissions/reload', reloadRoute, async () => {
    await deps.access.reload()
    return { message: 'Permission cache reloaded successfully' }
  })
  app.get('/permissions/explain', explainRoute, (request) => explain(deps, request.query))
  app.post('/permissions/explain', explainMoreRoute, ({ body: { id, ...question } }) =>
    explain(deps, { ...question, ...(id !== undefined && { id: String(id) }) }),
  )
  app.post('/permissions/who', whoRoute, async ({ body }) => ({ data: await whoMay(deps, body) }))
  app.post('/permissions/impact', impactRoute, async ({ body }) => ({ data: await impactOf(deps, body) }))
  app.get('/permissions-export', exportRoute, async (_request, reply) => {
    const file = await exportPermissions(deps)
    const name = `permissions-${file.timestamp.slice(0, 10)}.json`
    return reply.header('content-disposition', `attachment; filename="${name}"`).send(file)
  })
  app.register(async (scope) => {
    acceptJsonUploads(scope as App, deps.config)
    scope.post('/permissions-preview-import', previewRoute, async (request) =>
      previewImport(deps, await uploaded(request)),
    )
    scope.post('/permissions-import', importRoute, async (request) =>
      importPermissions(deps, actorOf(request), await uploaded(request)),
    )
  })
}

function uploaded(request: FastifyRequest): Promise<unknown> {
  return uploadedJson(request, 'rolesPermissions', 'No roles & permissions file uploaded')
}

function writeRoutes(app: App, deps: PermissionWrites, store: RuleStore): void {
  const { path, collection, what } = store
  // By itself: what follows it must not have it done again.
  const change = (request: FastifyRequest, wanted: Change) =>
    withFreshCatalog(deps.catalog, () => changeItems(deps, requesterOf(request), collection, wanted))
  app.post(path, createRoute(what), async (request, reply) => {
    const row = request.body
    await checkRule(deps, collection, row)
    const { ids } = await change(request, { action: 'create', payloads: [row] })
    const id = ids[0]!
    return reply.code(201).send(await stored(deps, store, JSON.parse(id)))
  })
  app.patch(`${path}/:id`, changeRoute(what), async (request) => {
    const { id } = request.params
    const changes = request.body
    await stored(deps, store, id)
    await checkRule(deps, collection, changes, id)
    await change(request, { action: 'update', changes: [{ id, payload: changes }] })
    return stored(deps, store, id)
  })
  app.delete(`${path}/:id`, removeRoute(what), async (request, reply) => {
    const { id } = request.params
    await stored(deps, store, id)
    await checkRuleDelete(deps, collection, [id])
    await change(request, { action: 'delete', ids: [id] })
    return reply.code(204).send()
  })
}

async function stored(
  { db, catalog }: Reads & CurrentCatalog,
  { collection, what }: RuleStore,
  id: string,
): Promise<RuleRow> {
  const row = await storedRow(db, catalog.current(), collection, id)
  if (row === undefined) throw new AppError(404, `${what} not found`)
  return row
}

const declared = routesOf('Permissions')

/** `Permission` or `ACL`. */
type What = 'Permission' | 'ACL'

/** The members of a permission or a named rule; `permissions.ts` reads them. */
const rule = {
  fields: Anything(['id', 'name'], { description: 'Which fields; `["*"]` for all.' }),
  conditions: Anything({ userCreated_Id: '$CURRENT_USER' }, { description: 'Which items: a filter.' }),
  relConditions: Anything(null, { description: 'Which nested items, by relation.' }),
  defaultValues: Anything(null, { description: 'The values that a new item gets.' }),
}
const own: Readonly<Record<What, TProperties>> = {
  Permission: {
    role_Id: Id({ description: 'The role that gets the right.' }),
    collection: Text('products', { description: 'On the items of this collection, which need not be there yet.' }),
    action: OneOf(['create', 'read', 'update', 'delete'], { description: 'create, read, update or delete.' }),
    acl_Ids: Anything(null, { description: 'The named rules that hold besides.' }),
  },
  ACL: {
    name: Text('own items', { description: 'Unique.' }),
    description: Anything('Items that the caller has created', { description: 'For people.' }),
  },
}

const bodyOf = (what: What) =>
  Type.Object(
    {
      ...Object.fromEntries(
        Object.entries({ ...own[what], ...rule }).map(([name, member]) => [
          name,
          Type.Optional(Type.Unknown({ ...member, type: undefined, format: undefined, enum: undefined })),
        ]),
      ),
    },
    {
      additionalProperties: true,
      refusal: 'Request body must be an object',
      examples: [
        what === 'ACL'
          ? { name: 'own items', conditions: { userCreated_Id: '$CURRENT_USER' } }
          : { role_Id: '0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', collection: 'products', action: 'read', fields: ['*'] },
      ],
    },
  )

const rowOf = (what: What) =>
  Type.Object({ id: Id(), ...own[what], ...rule }, { additionalProperties: true, description: 'As it is stored.' })

const namesOf = { Permission: 'permission', ACL: 'named rule' } as const
const RowParams = Type.Object({ id: ItemParams.properties.id })

const listRoute = (what: What) =>
  declared({
    summary: `List ${namesOf[what]}s`,
    scope: 'admin',
    description: 'With the parameters of any list of items.',
    query: ListQuery,
    response: {
      200: Type.Object({
        data: Type.Array(Type.Record(Type.String(), Type.Unknown(), { examples: [{ collection: 'products' }] })),
        totalCount: Type.Optional(Type.Integer({ examples: [1] })),
      }),
    },
    readElsewhere: 'all',
    sendsText: true,
  })
const readRoute = (what: What) =>
  declared({
    summary: `Read a ${namesOf[what]}`,
    scope: 'admin',
    params: RowParams,
    query: ReadQuery,
    response: {
      200: Type.Object({
        data: Type.Record(Type.String(), Type.Unknown(), { examples: [{ collection: 'products' }] }),
      }),
    },
    readElsewhere: 'all',
    sendsText: true,
  })
const createRoute = (what: What) =>
  declared({
    summary: `Create a ${namesOf[what]}`,
    scope: 'admin',
    body: bodyOf(what),
    response: { 201: rowOf(what) },
    sendsText: true,
  })
const changeRoute = (what: What) =>
  declared({
    summary: `Change a ${namesOf[what]}`,
    scope: 'admin',
    params: RowParams,
    body: bodyOf(what),
    response: { 200: rowOf(what) },
    sendsText: true,
  })
const removeRoute = (what: What) =>
  declared({
    summary: `Delete a ${namesOf[what]}`,
    scope: 'admin',
    params: RowParams,
    response: { 204: Nothing },
    sendsText: true,
  })
const reloadRoute = declared({
  summary: 'Read the permissions from the database anew',
  scope: 'admin',
  response: { 200: Said('Permission cache reloaded successfully') },
})

const Explained = Type.Object({
  stored: Anything({ userCreated_Id: '$CURRENT_USER' }),
  resolved: Anything({ userCreated_Id: '0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44' }),
  problem: NullableText('unknown variable', { description: 'Why it lets nothing through.' }),
})
const FieldList = Type.Union([Type.Array(Text('name')), Type.Null()])
const Problem = Type.Object(
  { field: Text('fields'), message: Text('unknown field'), rule: Text('permission') },
  { additionalProperties: true },
)

const once = (name: string) => badQuery(`${name}: is repeated`)
const asked = (name: string, example: string, description: string) =>
  Type.Optional(Text(example, { description, refusal: once(name) }))

const ExplainQuery = Type.Object({
  collection: Type.String({
    minLength: 1,
    examples: ['products'],
    refusal: { type: once('collection'), otherwise: badQuery('collection: is required') },
  }),
  action: OneOf(['create', 'read', 'update', 'delete'], {
    refusal: { type: once('action'), otherwise: badQuery('action: must be create, read, update or delete') },
  }),
  role: asked('role', 'user', 'By id or name; either this or `user` is needed.'),
  user: asked('user', '', 'By id.'),
  tenant: asked('tenant', '0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', 'Where the role is held.'),
  id: asked('id', '7', 'An item.'),
  field: asked('field', 'price', 'A field of it.'),
})

const RecordId = Type.Union([Type.String({ minLength: 1 }), Type.Integer()], { examples: ['7'] })
const MadeUp = Type.Record(Type.String(), Type.Unknown(), {
  description: 'A row that is not there, by its fields, instead of an item.',
  examples: [{ status: 'draft' }],
})

const ExplainBody = Type.Object({
  ...ExplainQuery.properties,
  id: Type.Optional(RecordId),
  record: Type.Optional(MadeUp),
  fields: Type.Optional(
    Type.Array(Text('price'), { maxItems: 200, description: 'Fields that are each told whether they are allowed.' }),
  ),
})

const Term: TSchema = Type.Object({
  kind: OneOf(['all', 'any', 'not', 'test']),
  holds: Type.Unsafe<boolean | null>({
    type: ['boolean', 'null'],
    description: 'Null without an item.',
    examples: [true],
  }),
  terms: Type.Optional(Type.Array(Anything({ kind: 'test', path: 'stars', holds: true }))),
  path: Type.Optional(Text('userCreated_Id')),
  stored: Type.Optional(Anything('$CURRENT_USER')),
  resolved: Type.Optional(Anything('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44')),
  actual: Type.Optional(
    Anything(['0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44'], { description: 'The item’s values at the path.' }),
  ),
})

const Explanation = {
  response: {
    404: GeneralError,
    200: Type.Object({
      allowed: Type.Boolean(),
      decidedBy: OneOf(['administrator', 'account', 'permission', 'collection', 'tenant', 'rule', 'field', 'row']),
      reason: Text('The permission allows it'),
      collection: Text('products'),
      action: OneOf(['create', 'read', 'update', 'delete']),
      role: Type.Union([Type.Object({ id: Id(), name: Text('user') }), Type.Null()]),
      user: Type.Union([Type.Object({ id: Id(), status: Text('active') }), Type.Null()]),
      tenant: NullableId(),
      permission: Type.Union([
        Type.Object({
          id: Id(),
          acls: Type.Array(Type.Object({ id: Id(), name: Text('own items') })),
          fields: FieldList,
          problems: Type.Array(Problem),
        }),
        Type.Null(),
      ]),
      fields: FieldList,
      dropped: Type.Union([
        Type.Array(
          Type.Object({ field: Text('price'), reason: Text("You don't have permission to update field: price") }),
        ),
        Type.Null(),
      ]),
      asked: Type.Array(
        Type.Object({ field: Text('price'), allowed: Type.Boolean(), reason: NullableText('The field is hidden') }),
      ),
      terms: Type.Union([Term, Type.Null()]),
      tenantRule: Type.Object({
        applies: Type.Boolean(),
        holds: Type.Unsafe<boolean | null>({ type: ['boolean', 'null'], examples: [true] }),
      }),
      relations: Type.Array(Type.Unknown(), { examples: [[]] }),
      through: Type.Array(Type.Unknown(), { examples: [[]] }),
      conditions: Explained,
      relConditions: Explained,
      defaultValues: Explained,
      row: Type.Union([
        Type.Object({
          exists: Type.Boolean(),
          matches: Type.Boolean(),
          conditions: Type.Boolean(),
          tenant: Type.Boolean(),
          deleted: Type.Boolean(),
        }),
        Type.Null(),
      ]),
    }),
  },
  sendsText: true,
} as const
const cannotDisagree = 'It asks what every request asks, so it cannot disagree with them.'

const explainRoute = declared({
  summary: 'Explain whether somebody may do something',
  scope: 'read',
  description: cannotDisagree,
  query: ExplainQuery,
  ...Explanation,
})
const explainMoreRoute = declared({
  summary: 'Explain whether somebody may do something, also to a row that is not there',
  scope: 'read',
  description: cannotDisagree,
  body: ExplainBody,
  ...Explanation,
})

const WhoBody = Type.Object({
  collection: ExplainQuery.properties.collection,
  id: RecordId,
  action: Type.Optional(OneOf(['read', 'update', 'delete'], { default: 'read' })),
})
const Person = Type.Object({
  id: Id(),
  email: NullableText('ada@example.com'),
  firstName: Text('Ada'),
  lastName: NullableText('Lovelace'),
})
const complete = Type.Boolean({ description: 'False where there were too many, or no time, to look at all.' })

const whoRoute = declared({
  summary: 'List who may see, change or delete an item',
  scope: 'read',
  description:
    'By role, with how many of its users may. Users are asked one by one where the rule names the caller, at most 200 of a role.',
  body: WhoBody,
  response: {
    200: Type.Object({
      data: Type.Object({
        complete,
        strangers: Type.Unsafe<boolean | null>({
          type: ['boolean', 'null'],
          description: 'Whether callers without a session may.',
          examples: [false],
        }),
        roles: Type.Array(
          Type.Object({
            role: Type.Object({ id: Id(), name: Text('editor') }),
            reason: OneOf(['administrator', 'no permission', 'rule', 'every row']),
            users: Count(12, { description: 'Active users with the role.' }),
            allowed: Count(3),
            looked: Count(12, { description: 'Users that the answer is about.' }),
            people: Type.Array(Person, { description: 'The first 20 who may.' }),
          }),
        ),
      }),
    }),
  },
  sendsText: true,
})

const Draft = Type.Object({
  role: Text('editor', { description: 'By id or name.' }),
  collection: ExplainQuery.properties.collection,
  action: ExplainQuery.properties.action,
  permission: Type.Union([Type.Partial(Type.Object({ ...rule, acl_Ids: Anything(null) })), Type.Null()], {
    description: 'As it would be stored; null where it would be deleted.',
  }),
})
const ImpactBody = Type.Object({
  changes: Type.Array(Draft, { minItems: 1, maxItems: 20, refusal: 'changes must be a list of 1 to 20 changes' }),
  acls: Type.Optional(
    Type.Array(Type.Object({ id: Id(), ...Type.Partial(Type.Object(rule)).properties }), {
      maxItems: 20,
      description: 'Named rules as they would be stored, by id: what the changes are then.',
      refusal: 'acls must be a list of at most 20 named rules with their ids',
    }),
  ),
})

const impactRoute = declared({
  summary: 'Show what an edit of permissions would change',
  scope: 'read',
  description:
    'Nothing is stored. Rows are counted for the users of the role, at most 50 where the rule names the caller; large collections are estimated from a part of their rows after three seconds.',
  body: ImpactBody,
  response: {
    200: Type.Object({
      data: Type.Array(
        Type.Object({
          role: Type.Object({ id: Id(), name: Text('editor') }),
          collection: Text('products'),
          action: OneOf(['create', 'read', 'update', 'delete']),
          kind: OneOf(['unchanged', 'created', 'changed', 'deleted']),
          users: Type.Object({
            total: Count(12),
            looked: Count(12),
            gaining: Count(0, { description: 'Of those looked at: who could do it to more rows.' }),
            losing: Count(12),
          }),
          rows: Type.Union(
            [
              Type.Object({
                total: Count(1000),
                gained: Count(0, { description: 'Rows that at least one user gains.' }),
                lost: Count(340),
                exact: Type.Boolean({ description: 'Whether they were counted, not estimated.' }),
              }),
              Type.Null(),
            ],
            { description: 'Null for create, and where there was no time.' },
          ),
          fields: Type.Object(
            { gained: Type.Array(Text('members.firstName')), lost: Type.Array(Text('price')) },
            { description: 'Own columns, and those of relations that the permission opens by naming them.' },
          ),
          complete,
        }),
      ),
    }),
  },
  sendsText: true,
})

const Place = Type.Object({ role: Text('user'), collection: Text('products'), action: Text('read') })
const Exported = Type.Object({
  version: Text('1.0'),
  timestamp: Text('2026-03-14T09:26:53.589Z'),
  roles: Type.Array(
    Type.Object({
      name: Text('user'),
      description: NullableText('Everybody who has registered'),
      permissions: Type.Array(Type.Unknown(), {
        examples: [[{ collection: 'products', action: 'read', fields: ['*'] }]],
      }),
    }),
  ),
})
const FileBody = fileBody('rolesPermissions')

const exportRoute = declared({
  summary: 'Download all roles and permissions as a file',
  scope: 'admin',
  response: { 200: Exported },
  sendsText: true,
})
const previewRoute = declared({
  summary: 'Show what an import of roles and permissions would change',
  scope: 'admin',
  body: FileBody,
  response: {
    200: Type.Object({
      importVersion: Anything('1.0'),
      importTimestamp: Anything('2026-03-14T09:26:53.589Z'),
      changes: Type.Object({
        newRoles: Type.Array(Text('editor')),
        new: Type.Array(Place),
        modified: Type.Array(Type.Object({ ...Place.properties, differences: Type.Array(Text('fields')) })),
        deleted: Type.Array(Place),
        unchanged: Type.Array(Place),
      }),
    }),
  },
  readElsewhere: 'all',
})
const importRoute = declared({
  summary: 'Import roles and permissions from a file',
  scope: 'admin',
  description: 'All or nothing. The permissions of a role that it lists are replaced.',
  body: FileBody,
  response: {
    200: Type.Object({
      message: Text('Roles and permissions import completed'),
      changes: Type.Object({
        createdRoles: Type.Array(Text('editor')),
        created: Type.Array(Place),
        updated: Type.Array(Place),
        deleted: Type.Array(Place),
        errors: Type.Array(Type.Unknown(), { examples: [[]] }),
      }),
    }),
  },
  readElsewhere: 'all',
})
