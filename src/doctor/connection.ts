import { openLogger } from '../adapters/logger.ts'
import type { Config } from '../config/config.ts'
import { type Line, openLine } from '../db/line.ts'
import { lookAtLine } from '../db/look-at-line.ts'
import { type Database, openDatabase, openPool } from '../db/pools.ts'
import { type Finding, problem, reasonOf } from './finding.ts'

const longestWaitMs = 5000

/** A few read-only connections to one address, opened as the processes open theirs but with less patience. */
export function openForLooking(config: Config, url: string, line?: Line): Database {
  const impatient: Config = { ...config, database: { ...config.database, poolAcquireMs: longestWaitMs } }
  const pool = openPool({ config: impatient, log, max: 2, readOnly: true, name: 'doctor', url, ...(line && { line }) })
  return openDatabase(pool, { log, logSql: false, onLoss: 'fail' })
}

/** What lies on the way to an address, as the processes would find it. */
export async function lookForLine(config: Config, url: string): Promise<Line> {
  const facts = await lookAtLine({ config, url, patienceMs: longestWaitMs })
  return openLine({ facts, named: config.database.preparedStatements, log })
}

const log = openLogger({ level: 'silent', name: 'doctor', stderr: true })

/** Server and database of an address, without who signs in. */
export function placeOf(url: string): string {
  const { host, pathname } = new URL(url)
  return `${host}${pathname}`
}

/** Why an address gives no connection, and what would help; `variable` holds the address. */
export function unreachable(check: string, variable: string, url: string, thrown: unknown): Finding {
  const cause = (thrown as { cause?: unknown }).cause ?? thrown
  const { code = '' } = cause as { code?: string }
  const remedy =
    remedies[code] ?? `see that the server runs, that a firewall lets you through, and that ${variable} is right`
  return problem(check, `${placeOf(url)} cannot be reached: ${reasonOf(cause)}`, remedy.replaceAll('$', variable))
}

/** By the codes of the operating system and of PostgreSQL; `$` is the variable. */
const remedies: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'start PostgreSQL there, or correct host and port in $',
  ENOTFOUND: 'correct the host in $',
  EAI_AGAIN: 'correct the host in $, or repair the name service',
  '28P01': 'correct user or password in $',
  '28000': 'let this user and client in by pg_hba.conf, or correct the user in $',
  '3D000': 'create the database, or correct its name in $',
  '42501': 'grant the user CONNECT on the database',
  '53300': 'raise max_connections, or lower DATABASE_POOL_MAX of the processes that run',
  '57P03': 'wait until the server has started or recovered',
  '08P01': 'take what the pooler does not know out of $, or name the server itself there',
}
