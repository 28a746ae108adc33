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
    expect(refusal(Plain, {})[2]).toBe("body must have required property 'name'")
    expect(refusal(Plain, { name: 1 })[2]).toBe('body/name must be string')
    expect(refusal(Plain, { name: 'a', list: [1, 'b'] })[2]).toBe('body/list/1 must be integer')
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
    expect(refusal(Query, { limit: '0' }, 'querystring')[2]).toBe('querystring/limit must be >= 1')
    expect(refusal(Query, { limit: '25' })[2]).toBe('body/limit must be integer')
  })

  it('times and text are what the database takes for them', () => {
    const Time = Type.String({ format: 'date-time' })
    expect(readAs(Time, '2026-03-14T09:26:53.589+01:00')).toBe('2026-03-14T09:26:53.589+01:00')
    for (const bad of ['2026-03-14', '2026-03-14T25:00:00Z', '2026-03-14T09:26:53Z[Europe/Zurich]'])
      expect(() => readAs(Time, bad)).toThrow('body must match format "date-time"')
    for (const bad of ['a\0b', '\ud800']) expect(() => readAs(Type.String({ format: 'unicode' }), bad)).toThrow()
  })
})
