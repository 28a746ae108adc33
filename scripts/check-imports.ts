/**
 * Checks the import rules of .dependency-cruiser.json and those of the floors (floors.ts), of `import type` too. A run that looks at no module, or a fixture of forbidden imports
 * that passes, fails too: a check that cannot fail is none.
 */
import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { rulesOfFloors } from './floors.ts'

type Report = {
  summary: {
    totalCruised: number
    violations: { from: string; to: string; rule: { name: string; severity: string } }[]
  }
}

const fixture = 'test/fixtures/forbidden-imports'
const rulesOfFixture = [
  'floor-data',
  'floor-query',
  'slices-by-their-face',
  'processes-by-the-face',
  'every-file-on-a-floor',
  'no-circular',
  'one-door-for-writes',
  'unlogged-statements-in-one-place',
  'query-is-pure',
  'one-home-adapters',
]

const own = mkdtempSync(join(tmpdir(), 'daybook-rules-'))
const rules = join(own, 'rules.json')
writeFileSync(rules, JSON.stringify(withFloors(JSON.parse(readFileSync('.dependency-cruiser.json', 'utf8')))))
process.on('exit', () => rmSync(own, { recursive: true }))

const source = cruise(['src', 'migrations', 'bench'])
if (source.summary.totalCruised < 50) fail(`only ${source.summary.totalCruised} modules were looked at`)
const violations = source.summary.violations
if (violations.length > 0) fail(violations.map(({ rule, from, to }) => `${rule.name}: ${from} → ${to}`).join('\n'))

const caught = new Set(cruise(['src'], fixture).summary.violations.map(({ rule }) => rule.name))
const missed = rulesOfFixture.filter((rule) => !caught.has(rule))
if (missed.length > 0) fail(`the fixture's forbidden imports were not caught by: ${missed.join(', ')}`)
console.log(`import rules hold for ${source.summary.totalCruised} modules`)

function cruise(paths: string[], directory?: string): Report {
  const root = process.cwd()
  const bin = `${root}/node_modules/dependency-cruiser/bin/dependency-cruiser.mjs`
  const args = [bin, ...paths, '--config', rules, '--output-type', 'json']
  if (directory !== undefined) args.push('--ts-config', `${root}/tsconfig.json`)
  try {
    return JSON.parse(
      execFileSync(process.execPath, args, { cwd: directory, encoding: 'utf8', maxBuffer: 100_000_000 }),
    )
  } catch (error) {
    const { stdout, status } = error as { stdout?: string; status?: number }
    if (status !== undefined && stdout) return JSON.parse(stdout)
    throw error
  }
}

function withFloors(config: { forbidden: object[]; options: { tsConfig: object } }) {
  return {
    forbidden: [...config.forbidden, ...rulesOfFloors()],
    options: { ...config.options, tsConfig: { fileName: join(process.cwd(), 'tsconfig.json') } },
  }
}

function fail(message: string): never {
  console.error(message)
  process.exit(1)
}
