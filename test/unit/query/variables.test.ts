import { describe, expect, it } from 'vitest'
import { UNRESOLVED } from '../../../src/catalog/values.ts'
import { variableScope } from '../../../src/query/resolve.ts'
import { resolveDefaults, substitute } from '../../../src/query/variables.ts'
import { admin, env, role, T1, U1 } from './support/access.ts'
import { catalog } from './support/catalog.ts'
import { listOf, refusal } from './support/compiled.ts'

const caller = role({
  userId: U1,
  grants: { notes: {}, svc_User: {} },
  variables: (name, path) => {
    const values: Record<string, unknown> = {
      CURRENT_USER: U1,
      'CURRENT_USER.email': 'ann@example.com',
      'CURRENT_USER.userRoles.tenant_Id': [T1],
      'CURRENT_SETTINGS.title': 'The Daily',
      'CURRENT_SETTINGS.smtp_host': 'mail.internal',
      'CURRENT_USER.password': 'canary',
      'CURRENT_SETTINGS.smtp_pass': 'canary',
    }
    return values[[name, ...path].join('.')]
  },
})
const scope = { catalog, access: caller, now: env.now, ofRequest: true }
const ofRule = variableScope(catalog, caller, env.now)

describe('$NOW', () => {
  it.each([
    ['$NOW', '2024-05-10T12:00:00.000Z'],
    ['$NOW-DAYS_7', '2024-05-03T12:00:00.000Z'],
    ['$NOW-DAY_7', '2024-05-03T12:00:00.000Z'],
    ['$NOW+WEEKS_1', '2024-05-17T12:00:00.000Z'],
    ['$NOW-MONTHS_1', '2024-04-10T12:00:00.000Z'],
    ['$NOW-YEARS_1', '2023-05-11T12:00:00.000Z'],
    ['$NOW+HOURS_36', '2024-05-12T00:00:00.000Z'],
    ['$NOW-MINUTES_1', '2024-05-10T11:59:00.000Z'],
    ['$NOW+SECONDS_1', '2024-05-10T12:00:01.000Z'],
  ])('%s is %s', (text, value) => {
    expect(substitute(text, scope)).toBe(value)
  })

  it.each(['$NOW-', '$NOW+INVALID_5', '$NOWX', '$NOW-DAYS_', '$NOW-DAYS_1.5', '$NOW+YEARS_999999999', '$now', ' $NOW'])(
    '%j stays text',
    (text) => {
      expect(substitute(text, scope)).toBe(text)
      expect(refusal(() => listOf({ query: { filter: { published: { gt: text } } } }))).toMatchObject({ status: 400 })
    },
  )
})

describe('$CURRENT_…', () => {
  it('is replaced wherever it stands', () => {
    const value = { a: ['$CURRENT_USER', { b: '$CURRENT_USER.email' }], c: 5, d: null, e: '$CURRENT_TENANT' }
    expect(substitute(value, scope)).toEqual({ a: [U1, { b: 'ann@example.com' }], c: 5, d: null, e: UNRESOLVED })
  })

  it('becomes null in default values when there is none', () => {
    expect(resolveDefaults({ owner_Id: '$CURRENT_USER', tenant_Id: '$CURRENT_TENANT', at: '$NOW' }, ofRule)).toEqual({
      owner_Id: U1,
      tenant_Id: null,
      at: env.now.toISOString(),
    })
  })

  it.each(['$CURRENT_USERS', '$CURRENT_USER.', '$CURRENT_USER.a-b', '$CURRENT', 'x$CURRENT_USER'])(
    '%j stays text',
    (text) => {
      expect(substitute(text, scope)).toBe(text)
    },
  )

  it('never gives a hidden field, not even to a rule', () => {
    for (const text of ['$CURRENT_USER.password', '$CURRENT_SETTINGS.smtp_pass', '$CURRENT_TENANT.password']) {
      const work = (which: typeof scope) => () => substitute(text, which)
      if (text === '$CURRENT_TENANT.password') expect(work(scope)()).toBe(UNRESOLVED)
      else for (const which of [scope, ofRule]) expect(refusal(work(which))).toMatchObject({ status: 403 })
    }
  })

  it('gives settings in a request only to those who may read them', () => {
    const readers = (fields: string[] | null) => ({
      ...scope,
      access: { ...caller, grant: () => ({ fields, conditions: null, relConditions: null, defaultValues: null }) },
    })
    expect(refusal(() => substitute('$CURRENT_SETTINGS.smtp_host', scope))).toMatchObject({ status: 403 })
    expect(refusal(() => substitute('$CURRENT_SETTINGS.smtp_host', readers(['title'])))).toMatchObject({ status: 403 })
    expect(substitute('$CURRENT_SETTINGS.title', readers(['title']))).toBe('The Daily')
    expect(substitute('$CURRENT_SETTINGS.smtp_host', readers(null))).toBe('mail.internal')
    expect(substitute('$CURRENT_SETTINGS.smtp_host', ofRule)).toBe('mail.internal')
  })
})

describe('a variable in a filter', () => {
  const values = (filter: unknown, access = caller) => listOf({ access, query: { fields: ['id'], filter } }).values

  it('is NULL without a value, so that comparisons match nothing', () => {
    expect(values({ code: '$CURRENT_TENANT' })).toEqual([null])
    expect(values({ code: { ne: '$CURRENT_TENANT' } })).toEqual([null])
    expect(values({ code: { in: '$CURRENT_TENANT' } })).toEqual([null])
    expect(values({ code: { notIn: '$CURRENT_TENANT' } })).toEqual([null])
    expect(values({ code: { in: ['$CURRENT_TENANT', U1] } })).toEqual([[null, U1]])
    // `<> all` of a list with a NULL holds for no row: a rule with a variable that has no value fails closed.
    expect(values({ code: { notIn: ['$CURRENT_TENANT'] } })).toEqual([[null]])
    expect(values({ title: { contains: '$CURRENT_TENANT' } })).toEqual([null])
    expect(values({ meta: { jsonbContains: { by: '$CURRENT_TENANT' } } })).toEqual([null])
    expect(values({ stars: { between: ['$CURRENT_TENANT', 5] } })).toEqual([null, 5])
  })

  it('with several values is equal when one of them is, in a stored rule', () => {
    const code = (test: unknown) => {
      const grants = { notes: { conditions: { code: test } } }
      return listOf({ access: role({ grants, variables: caller.variable }), query: { fields: ['id'] } })
    }
    const variable = '$CURRENT_USER.userRoles.tenant_Id'
    expect(code(variable).text).toContain('t."code" = any($1::uuid[])')
    expect(code({ ne: variable }).values).toEqual([[T1]])
    expect(code({ in: variable }).values).toEqual([[T1]])
  })

  it.each(['$CURRENT_USER.userRoles.tenant_Id', '$CURRENT_USERROLE.tenant.name'])(
    'follows no relation in a request: %s',
    (variable) => {
      expect(refusal(() => values({ code: variable }))).toMatchObject({ status: 400 })
      expect(refusal(() => values({ code: variable }, admin))).toMatchObject({ status: 400 })
    },
  )

  it('must fit the column like any other value', () => {
    expect(refusal(() => values({ stars: '$CURRENT_USER' }))).toMatchObject({ status: 400 })
    expect(values({ owner_Id: '$CURRENT_USER' }, admin)).toEqual([U1])
  })
})
