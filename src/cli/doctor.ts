import { parseArgs } from 'node:util'
import { ConfigError, loadEnv } from '../config/config.ts'
import { examine } from '../doctor/doctor.ts'
import { type Finding, problem } from '../doctor/finding.ts'
import type { Command } from './command.ts'

export const usage = `Usage: daybook doctor [--json]
  Checks configuration, database, workers, Redis, SMTP and storage, one line each with the remedy. Changes nothing.
Exit codes: 0 everything works, 1 something does not.
`

/** Says what an installation lacks and how to fix it, one line a check; exit code 1 when something does not work. */
export const run: Command = async (args) => {
  const { json } = parseArgs({ args: [...args], options: { json: { type: 'boolean' } } }).values
  const findings = await findingsHere()
  process.stdout.write(json ? `${JSON.stringify({ findings }, null, 2)}\n` : findings.map(line).join(''))
  return findings.some(({ status }) => status === 'problem') ? 1 : 0
}

/** Of the installation as it is: the database is not started for it. */
async function findingsHere(): Promise<readonly Finding[]> {
  try {
    return await examine(loadEnv(process.cwd(), process.env))
  } catch (error) {
    // A .env that is none.
    if (error instanceof ConfigError) return [problem('configuration', error.message, 'correct the file')]
    throw error
  }
}

function line({ check, status, says, remedy }: Finding): string {
  return `${status.padEnd(7)}  ${check.padEnd(16)}  ${says}${remedy === undefined ? '' : ` → ${remedy}`}\n`
}
