import { readdirSync } from 'node:fs'
import { expect, it } from 'vitest'
import { operands, referencePages } from '../../scripts/reference/pages.ts'
import { entriesOfShapes, membersOfType } from '../../scripts/reference/source.ts'
import type { Kind } from '../../src/catalog/catalog.ts'
import { findOperator } from '../../src/query/operators.ts'

const pages = await referencePages()
const textOf = (name: string) => pages.find(({ path }) => path === `docs/reference/${name}.md`)!.text

it('has no page that nothing writes any more', () => {
  const written = readdirSync(new URL('../../docs/reference/', import.meta.url)).map((name) => `docs/reference/${name}`)
  expect(written.sort()).toEqual(pages.map(({ path }) => path).sort())
})

it('knows the routes of each part of the platform, and what they take and answer', () => {
  for (const route of ['GET /health', 'POST /auth/login', 'GET /items/{collection}', 'GET /openapi', 'POST /schemas'])
    expect(textOf('routes')).toContain(`[\`${route}\`]`)
  expect(textOf('routes').match(/^\| \[/gm)!.length).toBeGreaterThan(150)
  expect(textOf('routes-signing-in')).toMatch(
    /## POST \/auth\/login\n\nSign in.*For anybody\.[^#]*`password`[^#]*\*\*200\*\*/,
  )
})

it('says of each event and each queue what it is for', () => {
  const all = [
    ...membersOfType('src/events/types.ts', 'EventData'),
    ...entriesOfShapes('src/events/jobs.ts', 'jobShapes'),
  ]
  expect(all.filter(({ comment }) => comment === '').map(({ name }) => name)).toEqual([])
})

it('finds codes wherever they are declared', () => {
  for (const code of ['VALIDATION_ERROR', 'UNIQUE_VIOLATION', 'INVALID_TOKEN', 'HOOK_REFUSED', 'OVERLOADED'])
    expect(textOf('errors')).toContain(`| \`${code}\` |`)
})

it('shows operands that its operators take', () => {
  for (const [name, operand] of Object.entries(operands)) {
    const { operator } = findOperator(name)!
    const kind: Kind = [...(operator.kinds ?? ['text' as const])][0]!
    const type = {
      kind,
      pgType: kind === 'array' ? 'text[]' : 'text',
      element: kind === 'array' ? ('text' as const) : undefined,
    }
    expect(() => operator.read(operand, type, name), name).not.toThrow()
  }
})
