import { createHash } from 'node:crypto'
import { expect, it } from 'vitest'
import { statementName } from '../../src/db/pools.ts'

it('is made of the text alone, so that all processes give the same name to the same text', () => {
  const text = 'select $1::uuid'
  const digest = createHash('sha256').update(text).digest('base64url')
  expect(statementName(text)).toBe(`svc_${digest.slice(0, 32)}`)
  expect(digest.slice(0, 32)).toMatch(/^[\w-]{32}$/)
})

it('differs with the types of the parameters, and with a blank', () => {
  const texts = ['select $1::uuid', 'select $1::text', 'select  $1::uuid', 'select $1']
  expect(new Set(texts.map(statementName)).size).toBe(texts.length)
})

it('is the same again after thousands of other texts', () => {
  const first = statementName('select 0')
  const names = Array.from({ length: 5000 }, (_, i) => statementName(`select ${i} as n`))
  expect(new Set(names).size).toBe(names.length)
  expect(statementName('select 0')).toBe(first)
})

it('fits into what PostgreSQL keeps of a name', () => {
  expect(Buffer.byteLength(statementName('x'.repeat(100_000)))).toBeLessThanOrEqual(63)
})
