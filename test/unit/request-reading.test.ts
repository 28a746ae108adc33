import { Type } from 'typebox'
import { describe, expect, it } from 'vitest'
import type { AppError } from '../../src/errors.ts'
import { Filled, readAs, readerOf } from '../../src/http/shapes.ts'

const Shape = Type.Object({
  email: Filled('ada@example.com', { refusal: 'Email and password are required' }),
  password: Type.String({ minLength: 1, refusal: 'Email and password are required' }),
  type: Type.Optional(
    Type.Enum(['web', 'mobile'], { refusal: { status: 403, message: 'Invalid type', code: 'TYPE' } }),
  ),
  title: Type.Optional(Filled('Dr', { maxLength: 3, refusal: { maxLength: 'too long', otherwise: 'no title' } })),
  tenant: Type.Optional(Filled('x', { lenient: true })),
})
const whole = { email: 'a@b.c', password: 'x' }

const read = (schema: object, value: unknown, httpPart = 'body') =>
  readerOf({ schema, method: 'POST', url: '/', httpPart })(value) as true | { value?: unknown; error?: AppError }
const detailsOf = (schema: object, value: unknown, httpPart?: string) =>
  (read(schema, value, httpPart) as { error: AppError }).error.details
const refusal = (schema: object, value: unknown, httpPart?: string) => {
  const { error } = read(schema, value, httpPart) as { error: AppError }
  return [error.status, error.code, error.message]
}

describe('a request is read by a shape', () => {
  it('that it fits, and stays as it is', () => {
    expect(read(Shape, whole)).toBe(true)
    expect(read(Shape, { ...whole, more: 1 })).toBe(true)
  })

  it('null counts as absent, and so does a lenient member that does not fit', () => {
    expect(read(Shape, { ...whole, type: null, tenant: 7, more: null })).toEqual({ value: { ...whole, more: null } })
    expect(read(Shape, { ...whole, tenant: ' ' })).toEqual({ value: whole })
  })

  it('the first member that does not fit refuses it, in its words', () => {
    for (const body of [undefined, null, [], 'text', {}, { email: ' ' }, { email: 'a' }, { ...whole, password: 7 }])
      expect(refusal(Shape, body)).toEqual([400, 'BAD_REQUEST', 'Email and password are required'])
    expect(refusal(Shape, { ...whole, type: 'tv', title: 7 })).toEqual([403, 'TYPE', 'Invalid type'])
    expect(refusal(Shape, { ...whole, title: 'Professor' })[2]).toBe('too long')
    expect(refusal(Shape, { ...whole, title: ' ' })[2]).toBe('no title')
  })

  it('that is closed, and refuses what it does not name', () => {
    const Closed = Type.Object({ to: Type.Optional(Type.String()) }, { additionalProperties: false })
    expect(read(Closed, { to: 'a' })).toBe(true)
    expect(read(Closed, { to: null })).toEqual({ value: {} })
    expect(refusal(Closed, { to: 'a', cc: null })).toEqual([400, 'BAD_REQUEST', 'Request body has no member "cc"'])
  })

  it('without words it is told where it does not fit', () => {
    const Plain = Type.Object({ name: Type.String(), list: Type.Optional(Type.Array(Type.Integer())) })
    const unfit = (value: unknown) => [...refusal(Plain, value), detailsOf(Plain, value)]
    const invalid = [400, 'BAD_REQUEST', 'Invalid request body']
    expect(unfit({})).toEqual([...invalid, 'name: is missing'])
    expect(unfit({ name: 1 })).toEqual([...invalid, 'name: expected text'])
    expect(unfit({ name: 'a', list: [1, 'b'] })).toEqual([...invalid, 'list.1: expected a whole number'])
  })

  it.each<[object, unknown, string]>([
    [Type.Array(Type.String()), 7, 'body: expected a list'],
    [
      Type.Object({ to: Type.Unsafe({ type: 'string', enum: ['a', 'b'] }) }),
      { to: 'c' },
      'to: expected one of "a", "b"',
    ],
    [
      Type.Object({ to: Type.Union([Type.String(), Type.Integer()]) }),
      { to: [] },
      'to: expected text or a whole number',
    ],
    [Type.Object({ to: Type.Object({ id: Type.String() }) }), { to: {} }, 'to.id: is missing'],
    [
      Type.Object({ to: Type.Object({ id: Type.String() }, { additionalProperties: false }) }),
      { to: { id: 'a', x: 1 } },
      'to: has no member "x"',
    ],
    [Type.Object({ to: Type.String({ minLength: 1 }) }), { to: '' }, 'to: expected at least 1 character'],
    [
      Type.Object({ to: Type.Array(Type.String(), { maxItems: 1 }) }),
      { to: ['a', 'b'] },
      'to: expected at most 1 entry',
    ],
    [Type.Object({ to: Filled('x') }), { to: ' ' }, 'to: expected text that is not blank'],
    [Type.Object({ to: Type.Unsafe({ type: ['string', 'null'] }) }), { to: 1 }, 'to: expected text or null'],
    [Type.Object({ to: Type.String({ format: 'uuid' }) }), { to: '1' }, 'to: expected a UUID'],
    [Type.Object({ to: Type.Refine(Type.String(), () => false) }), { to: '1' }, 'to: is not valid'],
    [
      Type.Object({ to: Type.Union([Type.Refine(Type.String(), () => false), Type.Null()]) }),
      { to: '1' },
      'to: is not valid',
    ],
    [
      Type.Object({ to: Type.Union([Type.Array(Type.String()), Type.Null()]) }),
      { to: ['a', 7] },
      'to.1: expected text',
    ],
  ])('%j: %j: %s', (shape, value, details) => {
    expect(detailsOf(shape, value)).toBe(details)
  })

  it('a value that is not an object is refused where the shape says so, and absent where no member is required', () => {
    const words = { refusal: 'Request body must be an object' }
    const Optional = Type.Object({ days: Type.Optional(Type.Integer()) }, words)
    expect(read(Optional, undefined)).toEqual({ value: {} })
    expect(refusal(Optional, [])[2]).toBe(words.refusal)
    expect(refusal(Type.Object({ days: Type.Integer() }, words), undefined)[2]).toBe(words.refusal)
    expect(refusal(Type.Array(Type.Integer(), { refusal: 'must be a list' }), {})[2]).toBe('must be a list')
  })

  it('parameters are text, and become what is declared', () => {
    const Query = Type.Object({
      limit: Type.Optional(Type.Integer({ minimum: 1 })),
      all: Type.Optional(Type.Boolean()),
    })
    expect(read(Query, { limit: '25', all: 'true' }, 'querystring')).toEqual({ value: { limit: 25, all: true } })
    expect(refusal(Query, { limit: '0' }, 'querystring')).toEqual([400, 'BAD_QUERY', 'Invalid query parameters'])
    expect(detailsOf(Query, { limit: '0' }, 'querystring')).toBe('limit: expected at least 1')
    expect(detailsOf(Query, { limit: '25' })).toBe('limit: expected a whole number')
  })

  it('times and text are what the database takes for them', () => {
    const Time = Type.String({ format: 'date-time' })
    expect(readAs(Time, '2026-03-14T09:26:53.589+01:00')).toBe('2026-03-14T09:26:53.589+01:00')
    for (const bad of ['2026-03-14', '2026-03-14T25:00:00Z', '2026-03-14T09:26:53Z[Europe/Zurich]'])
      expect(() => readAs(Time, bad)).toThrow('value: expected a time such as 2026-03-14T09:26:53Z')
    for (const bad of ['a\0b', '\ud800']) expect(() => readAs(Type.String({ format: 'unicode' }), bad)).toThrow()
  })
})
