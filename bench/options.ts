import { resolve } from 'node:path'
import { parseArgs } from 'node:util'
import type { Role } from './daybook.ts'

/** The options of a run; durations in seconds. */
export type BenchOptions = {
  /** Fewer and shorter rounds, fewer rows, subscribers and jobs, no growth, V8 still compiling: for a first idea. */
  readonly quick: boolean
  /** The realtime channel at the size that one web process is meant to hold. */
  readonly large: boolean
  readonly json: boolean
  /** Ids of workloads (`W1`), all when empty. */
  readonly only: readonly string[]
  readonly roles: readonly Role[]
  readonly rounds: number
  readonly seconds: number
  /** Connections that ask at the same time; as each workload says when undefined. */
  readonly clients: number | undefined
  /** How many products are seeded. */
  readonly products: number
  /** Without the column of the data cache. */
  readonly withCache: boolean
  /** Directory for CPU profiles of Daybook's web process. */
  readonly profile: string | undefined
  /** Which of the two: the one without the data cache, or the one with it. */
  readonly profileOf: 'daybook' | 'cached'
  /** Where the picture of P-GROWTH is written. */
  readonly curve: string | undefined
  /** A server whose role may create databases; the embedded one when undefined. */
  readonly databaseUrl: string | undefined
}

export const usage = `npm run bench -- [options]
  --quick            a first idea in under two minutes: shorter rounds, fewer rows, subscribers and jobs, no W14, P-backup, P-console, P-growth
  --large            W10 with 10,000 idle connections, and with 5,000 subscribers of 500 users at 1,000 changes a second
  --json             the figures as JSON instead of the table
  --only W1,W4       these workloads only
  --as ROLE          as admin or as limited only
  --rounds N         rounds per workload (5; quick 2)
  --seconds N        length of a round (2; quick 0.2)
  --clients N        clients of each workload that is measured in rounds (mostly 16)
  --products N       rows that are seeded (100000; quick 20000)
  --no-cache         without the column of the data cache
  --curve FILE       the curves of P-growth as a picture, SVG
  --profile DIR      CPU profiles of Daybook's web process into DIR, and their hottest functions
  --profile-of SIDE  of the process without the data cache (daybook, the default) or of the one with it (cached)
BENCH_DATABASE_URL   a PostgreSQL to make the database on, instead of the embedded one`

/** @throws Error that says what is wrong with the command line. */
export function readOptions(args: readonly string[], env: NodeJS.ProcessEnv): BenchOptions {
  const { values } = parseArgs({
    args: [...args],
    options: {
      quick: { type: 'boolean', default: false },
      large: { type: 'boolean', default: false },
      json: { type: 'boolean', default: false },
      only: { type: 'string', default: '' },
      as: { type: 'string' },
      rounds: { type: 'string' },
      seconds: { type: 'string' },
      clients: { type: 'string' },
      products: { type: 'string' },
      'no-cache': { type: 'boolean', default: false },
      curve: { type: 'string' },
      profile: { type: 'string' },
      'profile-of': { type: 'string', default: 'daybook' },
    },
  })
  const { quick, large, json, profile } = values
  return {
    quick,
    large,
    json,
    only: values.only === '' ? [] : values.only.toUpperCase().split(','),
    roles: rolesOf(values.as),
    rounds: numberOf('--rounds', values.rounds ?? (quick ? '2' : '5'), 1),
    seconds: numberOf('--seconds', values.seconds ?? (quick ? '0.2' : '2'), 0.2),
    clients: values.clients === undefined ? undefined : numberOf('--clients', values.clients, 1),
    products: numberOf('--products', values.products ?? (quick ? '20000' : '100000'), 1000),
    withCache: !values['no-cache'],
    curve: values.curve === undefined ? undefined : resolve(values.curve),
    profile: profile === undefined ? undefined : resolve(profile),
    profileOf: sideOf(values['profile-of'], !values['no-cache']),
    databaseUrl: env.BENCH_DATABASE_URL || undefined,
  }
}

/** A quick run has them only when they are asked for. */
const slow = ['W14', 'P-BACKUP', 'P-CONSOLE', 'P-GROWTH']

/** Whether a workload is to be measured. */
export const isWanted = ({ only, quick }: BenchOptions, id: string): boolean =>
  only.length === 0 ? !(quick && slow.includes(id)) : only.includes(id)

function rolesOf(text: string | undefined): readonly Role[] {
  if (text === undefined) return ['admin', 'limited']
  if (text === 'admin' || text === 'limited') return [text]
  throw new Error('--as: expected admin or limited')
}

function sideOf(text: string, withCache: boolean): BenchOptions['profileOf'] {
  if (text === 'daybook' || (text === 'cached' && withCache)) return text
  throw new Error('--profile-of: expected daybook or, without --no-cache, cached')
}

function numberOf(name: string, text: string, least: number): number {
  const number = Number(text)
  if (Number.isFinite(number) && number >= least) return number
  throw new Error(`${name}: expected a number of at least ${least}`)
}
