import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { removeLeftovers } from '../support/temporary.ts'

it.runIf(process.platform === 'linux')('the next start removes the leftovers of a killed run, and nothing else', () => {
  const place = mkdtempSync(join(tmpdir(), 'daybook-leftovers-'))
  const ended = spawnSync('true').pid
  const kept = [`daybook-run-${process.pid}`, 'daybook-run-1', 'daybook-run-x', 'daybook-tests-4711', 'somebody’s']
  for (const name of [...kept, `daybook-run-${ended}`]) mkdirSync(join(place, name))
  writeFileSync(join(place, `daybook-run-${ended}`, 'PG_VERSION'), '18')
  removeLeftovers(place)
  expect(new Set(readdirSync(place))).toEqual(new Set(kept))
  rmSync(place, { recursive: true })
})
