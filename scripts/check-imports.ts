/**
 * Checks the import rules of .dependency-cruiser.json. A run that looks at no module, or a fixture of forbidden imports
 * that passes, fails too: a check that cannot fail is none.
 */
import { execFileSync } from 'node:child_process'

type Report = {
  summary: {
    totalCruised: number
    violations: { from: string; to: string; rule: { name: string; severity: string } }[]
  }
}

const fixture = 'test/fixtures/forbidden-imports'
const rulesOfFixture = [
  'features-know-no-process',
  'one-door-for-writes',
  'unlogged-statements-in-one-place',
  'query-is-pure',
  'one-home-adapters',
]

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
  const args = [bin, ...paths, '--config', `${root}/.dependency-cruiser.json`, '--output-type', 'json']
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

function fail(message: string): never {
  console.error(message)
  process.exit(1)
}
