import { execFileSync } from 'node:child_process'
import { cpus, loadavg, totalmem } from 'node:os'
import type pg from 'pg'

/** The facts about the machine that the figures depend on. */
export type Machine = {
  readonly date: string
  readonly commit: string
  readonly processor: string
  readonly cores: number
  readonly memoryGb: number
  /** Of the last minute, before the run: above zero others were at work. */
  readonly loadBefore: number
  readonly node: string
  readonly postgres: string
}

export async function describeMachine(sql: pg.Client): Promise<Machine> {
  const { rows } = await sql.query<{ server_version: string }>('show server_version')
  return {
    date: new Date().toISOString(),
    commit: execFileSync('git', ['describe', '--always', '--dirty'], { encoding: 'utf8' }).trim(),
    processor: cpus()[0]?.model ?? 'unknown',
    cores: cpus().length,
    memoryGb: Math.round(totalmem() / 2 ** 30),
    loadBefore: loadavg()[0]!,
    node: process.version,
    postgres: rows[0]!.server_version,
  }
}

export function sentenceOf({ date, commit, processor, cores, memoryGb, loadBefore, node, postgres }: Machine): string {
  const what = `${cores} cores (${processor}), ${memoryGb} GB, Node ${node}, PostgreSQL ${postgres}`
  return `${date.slice(0, 16).replace('T', ' ')} UTC, ${commit}; ${what}; load before the run ${loadBefore.toFixed(1)}`
}
