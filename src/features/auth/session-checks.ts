import type { Database } from '../../db/pools.ts'
import { statementName } from '../../db/statement-names.ts'

export type SessionChecks = {
  /**
   * The version of everything that a live session stands on, by the hash of its token; undefined when it is not live.
   * What was committed before the question counts in the answer.
   */
  versionOf(tokenHash: string): Promise<string | undefined>
}

/** Where a live session is found: the rows s, u, ur, r and t of one whose user is active and has a role there. */
export const liveSessionSql = `
    from "svc_Sessions" s
    join "svc_User" u on u.id = s."user_Id" and u.status = 'active'
    join "svc_UserRole" ur on ur."user_Id" = s."user_Id" and ur."tenant_Id" is not distinct from s."tenant_Id"
    join "svc_Role" r on r.id = ur."role_Id"
    left join "svc_Tenant" t on t.id = s."tenant_Id"`

/** Differs after every change of one of these rows. */
export const sessionVersionSql = `concat_ws(' ', s.xmin, u.xmin, ur.xmin, r.xmin, t.xmin)`

/**
 * Asks the database on every request whether its session is live, and costs little (ADR 9): one statement at a time
 * answers for all that have asked before it began, so a busy process sends no more of them than an idle one.
 */
export function openSessionChecks(db: Database): SessionChecks {
  let next: Round | undefined
  let running = false

  const run = async () => {
    running = true
    while (next !== undefined) {
      const round = next
      next = undefined
      await round.ask(db)
    }
    running = false
  }

  return {
    versionOf: async (tokenHash) => {
      next ??= openRound()
      const { keys, answer } = next
      keys.add(tokenHash)
      if (!running) void run()
      return (await answer).get(tokenHash)
    },
  }
}

type Versions = ReadonlyMap<string, string>

type Round = { readonly keys: Set<string>; readonly answer: Promise<Versions>; ask(db: Database): Promise<void> }

/** `ask` never rejects: whoever waits for the answer hears of the failure. */
function openRound(): Round {
  const keys = new Set<string>()
  const { promise, resolve, reject } = Promise.withResolvers<Versions>()
  return { keys, answer: promise, ask: (db) => versionsOf(db, [...keys]).then(resolve, reject) }
}

const text = `
    select s.token, ${sessionVersionSql} as version ${liveSessionSql}
    where s.token = any($1::text[]) and s."expiresAt" > now()`

async function versionsOf(db: Database, tokenHashes: readonly string[]): Promise<Versions> {
  const rows = await db.run<{ token: string; version: string }>(text, [tokenHashes], statementName(text))
  return new Map(rows.map(({ token, version }) => [token, version]))
}
