import { describe, expect, it } from 'vitest'
import {
  accessOf,
  collectionsWithRowRules,
  fieldSpecs,
  grantOf,
  type Holder,
  hasInlineRule,
  readsLikeBuiltIn,
  relatedPath,
  relatedPathsOf,
  variablesIn,
  variableTarget,
} from '../../src/access/access.ts'
import type { AccessRules, AclRow, PermissionRow, Role, StoredRule } from '../../src/access/store.ts'
import { compileCatalog } from '../../src/catalog/compile.ts'
import { systemCollections } from '../../src/catalog/system-definitions.ts'
import type { VariableName } from '../../src/query/access.ts'
import { compileList } from '../../src/query/compile.ts'
import { parseListQuery } from '../../src/query/parse.ts'
import { resolveList } from '../../src/query/resolve.ts'
import { env, T1, U1 } from './query/support/access.ts'
import { catalog } from './query/support/catalog.ts'
import { refusal } from './query/support/compiled.ts'

const none: StoredRule = { fields: null, conditions: null, relConditions: null, defaultValues: null }

const permission = (more: Partial<PermissionRow> = {}): PermissionRow => ({
  id: 'p1',
  role_Id: 'r1',
  collection: 'notes',
  action: 'read',
  acl_Ids: null,
  createdAt: '',
  updatedAt: '',
  ...none,
  ...more,
})

const acl = (id: string, rule: Partial<StoredRule>): AclRow => ({ id, name: id, system: false, ...none, ...rule })

const grant = (row: Partial<PermissionRow>, ...acls: AclRow[]) =>
  grantOf(permission(row), { catalog, acls: new Map(acls.map((one) => [one.id, one])) })

describe('fieldSpecs', () => {
  it.each([
    ['*', ['*']],
    ['name,Review.*, Review.author.firstName', ['name', 'Review.*', 'Review.author.firstName']],
    [
      ['*', 'a, b.c'],
      ['*', 'a', 'b.c'],
    ],
    [' , ', null],
    ['', null],
    [[], null],
    [null, null],
    [undefined, null],
  ])('%j is %j', (stored, specs) => {
    expect(fieldSpecs(stored)).toEqual(specs)
  })
})

describe('the grant of a permission', () => {
  it('is what it says itself', () => {
    const rule = {
      fields: 'title',
      conditions: { stars: 1 },
      relConditions: { owner: {} },
      defaultValues: { stars: 2 },
    }
    expect(grant(rule)).toEqual({ ...rule, fields: ['title'] })
    expect(grant({})).toEqual(none)
  })

  it.each<[string, Partial<PermissionRow>]>([
    ['fields that are an object', { fields: { title: true } }],
    ['fields that are a number', { fields: 5 }],
    ['a list with something else in it', { fields: ['title', null] }],
    ['relConditions that are text', { relConditions: 'all' }],
    ['relConditions that are a list', { relConditions: [1] }],
    ['defaultValues that are text', { defaultValues: 'x' }],
    ['rules that are text', { acl_Ids: 'a' }],
    ['rules that are gone', { acl_Ids: ['gone'] }],
    ['rules beside fields', { acl_Ids: ['a'], fields: ['*'] }],
    ['rules beside conditions', { acl_Ids: ['a'], conditions: { stars: 1 } }],
  ])('is none with %s', (_what, row) => {
    expect(grant(row, acl('a', {}))).toBeUndefined()
  })

  it('takes empty values beside rules for none', () => {
    expect(grant({ acl_Ids: ['a'], fields: [], conditions: {}, defaultValues: {} }, acl('a', {}))).toBeDefined()
    expect(grant({ acl_Ids: [], fields: ['title'] })?.fields).toEqual(['title'])
    expect(hasInlineRule({ ...none, conditions: {} })).toBe(false)
    expect(hasInlineRule({ ...none, relConditions: { owner: {} } })).toBe(true)
  })
})

describe('named rules together', () => {
  const a = acl('a', { fields: ['title', 'stars'], conditions: { stars: 1 }, defaultValues: { stars: 1, title: 'a' } })
  const b = acl('b', { fields: 'stars, body', conditions: { title: 'x' }, defaultValues: { title: 'b' } })
  const ids = (...of: string[]) => ({ acl_Ids: of })

  it('let a row through that one of them does', () => {
    expect(grant(ids('a'), a)?.conditions).toEqual({ stars: 1 })
    expect(grant(ids('a', 'b'), a, b)?.conditions).toEqual({ OR: [{ stars: 1 }, { title: 'x' }] })
  })

  it.each([[null], [{}], [[]], [undefined]])(
    'let every row through where one of them has conditions %j',
    (conditions) => {
      expect(grant(ids('a', 'c'), a, acl('c', { conditions }))?.conditions).toBeNull()
    },
  )

  it('grant the fields of each', () => {
    expect(grant(ids('a', 'b'), a, b)?.fields).toEqual(['title', 'stars', 'body'])
    expect(grant(ids('a', 'c'), a, acl('c', { fields: null }))?.fields).toEqual(['title', 'stars', '*'])
    expect(grant({ ...ids('a', 'c'), action: 'update' }, a, acl('c', {}))?.fields).toEqual(['title', 'stars'])
    expect(grant({ ...ids('c'), action: 'update' }, acl('c', {}))?.fields).toBeNull()
    expect(grant(ids('c'), acl('c', { fields: ['-secret'] }))?.fields).toEqual(['*', '-secret'])
  })

  it('fill in what the last of them says', () => {
    expect(grant(ids('a', 'b'), a, b)?.defaultValues).toEqual({ stars: 1, title: 'b' })
    expect(grant(ids('b', 'a'), a, b)?.defaultValues).toEqual({ stars: 1, title: 'a' })
  })

  it('limit related rows where all of them do', () => {
    const relConditions = (...of: unknown[]) => {
      const acls = of.map((one, i) => acl(`${i}`, { relConditions: one }))
      return grant(ids(...acls.map(({ id }) => id)), ...acls)?.relConditions
    }
    const [few, mine] = [{ likes: { lt: 3 } }, { text: 'mine' }]
    expect(relConditions({ comments: few })).toEqual({ comments: few })
    expect(relConditions({ comments: few }, { comments: mine })).toEqual({ comments: { OR: [few, mine] } })
    expect(relConditions({ comments: few, owner: { age: 3 } }, { comments: mine })).toEqual({
      comments: { OR: [few, mine] },
    })
    expect(relConditions({ comments: few }, { owner: mine })).toEqual({})
    expect(relConditions({ comments: few }, null)).toBeNull()
    expect(relConditions({ comments: few }, { comments: {} })).toEqual({ comments: {} })
  })

  it('limit rows further away without taking them for a limit of the nearer ones', () => {
    const red = { owner: { team: { name: 'red' }, age: 1 } }
    const blue = { owner: { team: { name: 'blue' }, age: 2 } }
    const both = grant(ids('r', 'b'), acl('r', { relConditions: red }), acl('b', { relConditions: blue }))
    expect(both?.relConditions).toEqual({
      owner: { OR: [{ age: 1 }, { age: 2 }], team: { OR: [{ name: 'red' }, { name: 'blue' }] } },
    })
  })

  it('come out as one query', () => {
    const both = grant(ids('a', 'b'), a, b)!
    const access = {
      admin: false,
      roleId: 'r1',
      userId: U1,
      tenantId: undefined,
      tenantSpecific: false,
      grant: () => both,
      variable: () => undefined,
    }
    const { text, values } = compileList(
      resolveList(catalog, access, 'notes', parseListQuery({ fields: 'id', filter: { body: 'y' } }), env),
    )
    expect(text).toContain(
      '(t."stars" = $1::integer or t."title" = $2::text) and t."deletedAt" is null and t."body" = $3',
    )
    expect(values).toEqual([1, 'x', 'y'])
  })

  it('ignore one that is malformed, and are none when all are', () => {
    const broken = acl('x', { fields: 7 })
    expect(grant(ids('a', 'x'), a, broken)?.fields).toEqual(['title', 'stars'])
    expect(grant(ids('x'), broken)).toBeUndefined()
  })
})

const system = compileCatalog(systemCollections)

const role = (id: string, more: Partial<Role> = {}): Role => ({
  id,
  name: id,
  description: null,
  isTenantSpecific: true,
  canInviteRoleIds: [],
  ...more,
})

function rulesOf(permissions: Partial<PermissionRow>[], acls: AclRow[] = []): AccessRules {
  const rows = permissions.map((row) => permission({ collection: 'svc_File', ...row }))
  return {
    roles: new Map([['r1', role('r1')]]),
    publicRole: role('public'),
    permissions: Map.groupBy(rows, (row) => row.role_Id),
    acls: new Map(acls.map((one) => [one.id, one])),
    catalog: system,
    version: 1,
  }
}

const subject = (more: Partial<Holder> = {}): Holder => ({
  role: role('r1'),
  userId: U1,
  tenantId: T1,
  rows: { CURRENT_USER: { id: U1, email: 'ann@example.com', avatar_Id: 'f1' }, CURRENT_USERROLE: { id: 'ur1' } },
  related: new Map(),
  ...more,
})

describe('an access', () => {
  it('knows the administrator by the name of the role alone', () => {
    expect(accessOf(rulesOf([]), subject({ role: role('administrator') })).admin).toBe(true)
    for (const name of ['Administrator', 'administrator ', 'admin', 'аdministrator'])
      expect(accessOf(rulesOf([]), subject({ role: role('r1', { name }) })).admin).toBe(false)
  })

  it('grants what the role has a row for, by exact names', () => {
    const access = accessOf(rulesOf([{ fields: ['title'] }, { role_Id: 'r2', collection: 'svc_User' }]), subject())
    expect(access.grant('svc_File', 'read')?.fields).toEqual(['title'])
    for (const [collection, action] of [
      ['svc_File', 'update'],
      ['svc_file', 'read'],
      ['svc_User', 'read'],
      ['*', 'read'],
    ] as const)
      expect(access.grant(collection, action)).toBeUndefined()
  })
})

describe('variables', () => {
  const value = (text: string, rules = rulesOf([]), who = subject()) => {
    const [name, ...path] = text.split('.') as [VariableName, ...string[]]
    return accessOf(rules, who).variable(name, path)
  }

  it('are the ids and the columns of the caller’s rows', () => {
    expect(value('CURRENT_USER')).toBe(U1)
    expect(value('CURRENT_ROLE')).toBe('r1')
    expect(value('CURRENT_TENANT')).toBe(T1)
    expect(value('CURRENT_USERROLE')).toBe('ur1')
    expect(value('CURRENT_USER.email')).toBe('ann@example.com')
    for (const missing of [
      'CURRENT_USER.nothing',
      'CURRENT_USER.__proto__',
      'CURRENT_USER.constructor',
      'CURRENT_TENANT.name',
    ])
      expect(value(missing)).toBeUndefined()
  })

  it('over relations are known to those whose rules use them', () => {
    const rules = rulesOf([{ conditions: { tenant_Id: { in: '$CURRENT_USER.userRoles.tenant_Id' } } }])
    const related = new Map([['CURRENT_USER.userRoles.tenant_Id', [T1]]])
    expect(value('CURRENT_USER.userRoles.tenant_Id', rules, subject({ related }))).toEqual([T1])
    expect(value('CURRENT_USER.userRoles.tenant_Id', rules)).toBeUndefined()
    expect(refusal(() => value('CURRENT_USER.userRoles.role_Id', rules))).toMatchObject({ status: 400 })
    expect(refusal(() => value('CURRENT_USER.avatar'))).toMatchObject({ status: 400 })
  })

  it('that rules use are collected once each, from every part of a rule and from named ones', () => {
    const named = acl('n', { conditions: { type: '$CURRENT_TENANT.userRoles.id' } })
    const rules = rulesOf(
      [
        {
          conditions: { OR: [{ type: '$CURRENT_USER.avatar.type' }, { type: { in: ['$CURRENT_USER.avatar.type'] } }] },
        },
        {
          action: 'create',
          defaultValues: { folder: '$CURRENT_ROLE.permissions.action', title: '$CURRENT_USER.email' },
        },
        { action: 'update', relConditions: { tenant: { name: '$CURRENT_USERROLE.user.avatar' } } },
        { action: 'delete', acl_Ids: ['n'] },
        { role_Id: 'r2', conditions: { type: '$CURRENT_USER.userRoles.id' } },
      ],
      [named],
    )
    expect(relatedPathsOf(rules, 'r1')).toEqual([
      { key: 'CURRENT_USER.avatar.type', path: ['user', 'avatar', 'type'], many: false },
      { key: 'CURRENT_ROLE.permissions.action', path: ['role', 'permissions', 'action'], many: true },
      { key: 'CURRENT_USERROLE.user.avatar', path: ['user', 'avatar', 'id'], many: false },
      { key: 'CURRENT_TENANT.userRoles.id', path: ['tenant', 'userRoles', 'id'], many: true },
    ])
    expect(relatedPathsOf(rules, 'nobody')).toEqual([])
  })

  it.each([
    ['CURRENT_USER.password'],
    ['CURRENT_USER.userRoles.user.password'],
    ['CURRENT_USER.email.more'],
    ['CURRENT_USER.nothing'],
    ['CURRENT_USER.userRoles.nothing.id'],
  ])('%s stands for nothing', (text) => {
    const [name, ...path] = text.split('.') as [VariableName, ...string[]]
    expect(variableTarget(system, { name, path })).toBeUndefined()
    expect(relatedPath(system, { name, path })).toBeUndefined()
  })

  it('are found wherever a filter takes a value', () => {
    const found = variablesIn(
      { AND: [{ a: '$CURRENT_USER' }, { b: { in: ['$CURRENT_TENANT.name', '$NOW', '$X'] } }] },
      system,
    )
    expect(found).toEqual([
      { name: 'CURRENT_USER', path: [] },
      { name: 'CURRENT_TENANT', path: ['name'] },
    ])
  })
})

describe('collections with row rules', () => {
  it('are those with a condition on reading, named or not', () => {
    const rules = rulesOf(
      [
        { collection: 'svc_User', conditions: { id: '$CURRENT_USER' } },
        { collection: 'svc_Role', conditions: {} },
        { collection: 'svc_File', acl_Ids: ['n'] },
        { collection: 'svc_Tasks', action: 'update', conditions: { type: 'x' } },
      ],
      [acl('n', { conditions: { type: 'x' } })],
    )
    expect(collectionsWithRowRules(rules)).toEqual(['svc_User', 'svc_File'])
  })
})

describe('names of roles', () => {
  it.each([
    'administrator',
    'ADMINISTRATOR',
    'аdministrаtor',
    'adm1nlstrator',
    'ａｄｍｉｎｉｓｔｒａｔｏｒ',
    'pubIic',
    'us er',
    'úser',
  ])('%j reads like a built-in role', (name) => {
    expect(readsLikeBuiltIn(name)).toBe(true)
  })

  it.each(['admin', 'administrators', 'editor', 'users', 'public relations', 'Пользователь', 'user 2', ''])(
    '%j does not',
    (name) => {
      expect(readsLikeBuiltIn(name)).toBe(false)
    },
  )
})
