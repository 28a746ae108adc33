import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import { expect, it } from 'vitest'

it('the import rules hold, and catch what is forbidden', () => {
  const root = join(import.meta.dirname, '../..')
  const said = execFileSync(process.execPath, [join(root, 'scripts/check-imports.ts')], { cwd: root, encoding: 'utf8' })
  expect(said).toMatch(/^import rules hold for \d{2,} modules/)
})
