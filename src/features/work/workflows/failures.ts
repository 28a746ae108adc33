import { rawQuery, type Tx } from '../../../db/sql.ts'
import { type Actor, systemActor } from '../../../events/actor.ts'
import { inTransaction } from '../../data/items/items.ts'
import { insertNotification } from '../../messaging/notifications/notifications.ts'
import { platform } from './authority.ts'
import type { WorkflowDefinition, WorkflowWrites } from './capabilities.ts'
import type { CommitTurn, GroupCommit } from './group-commit.ts'
import { type ClaimedExecution, definitionFor, type Standing } from './queries.ts'
import type { State } from './step.ts'
import { optionsOf } from './validate.ts'

/* Executions that fail: those that cannot even begin, and who is told. */

/** An execution that could not begin, or go on. */
export async function endUnopened(
  deps: WorkflowWrites,
  commitInGroup: GroupCommit,
  claim: ClaimedExecution,
  message: string,
): Promise<void> {
  const state = { outputs: {}, variables: {}, error: null } as unknown as State
  const actor = { ...systemActor, userAgent: `daybook workflow ${claim.workflow_Id}`, cause: claim.cause ?? undefined }
  const standing: Standing = { is: 'over', status: 'failed', error: message, state }
  await commitInGroup({
    ...{ actor, kind: `${claim.workflow_Id} ${claim.version}` },
    work: async (turn) => {
      await tellEnd({ deps, claim, actor }, turn, standing)
      return { record: { claim, rows: [], standing }, result: undefined }
    },
  })
}

/** Of the failures of a workflow that follow each other, one is reported once in a while. */
const quietMinutes = 5

/** An execution that is over, and the version that it ran by where that could be opened. */
type EndedExecution = {
  readonly deps: WorkflowWrites
  readonly claim: ClaimedExecution
  readonly actor: Actor
  readonly definition?: WorkflowDefinition
}

/**
 * Notifies the users that the workflow names of a failure; administrators if it names none and has no author who can
 * act.
 */
export async function tellEnd(
  { deps, claim, actor, definition }: EndedExecution,
  { scope }: CommitTurn,
  { status, error }: Extract<Standing, { is: 'over' }>,
): Promise<void> {
  if (status !== 'failed') return
  const options = definition?.options ?? (await definitionFor(deps, claim))?.options
  const { notify } = optionsOf(options)
  const isUnopened = definition === undefined
  if (notify.length === 0 && !isUnopened) return
  await inTransaction(deps, { actor, access: platform, scope }, ({ tx }) =>
    notifyOf(tx, claim, error, notify, isUnopened),
  )
}

async function notifyOf(
  tx: Tx,
  claim: ClaimedExecution,
  error: string | null,
  notify: readonly string[],
  isUnopened: boolean,
): Promise<void> {
  const told = await tx.any(
    rawQuery(
      `insert into "svc_WorkflowUse" as u ("workflow_Id", "notifiedAt") values ($1, now())
       on conflict ("workflow_Id") do update set "notifiedAt" = now()
         where u."notifiedAt" is null or u."notifiedAt" < now() - make_interval(mins => $2) returning 1 as one`,
      [claim.workflow_Id, quietMinutes],
    ),
  )
  if (told.length === 0) return
  const users = await tx.any<{ id: string; name: string }>(
    rawQuery(
      `select u.id, w.name from "svc_User" u join "svc_Workflow" w on w.id = $1 where u.status = 'active' and (u.id::text = any($2::text[])
         or ($3 and exists (select from "svc_UserRole" ur join "svc_Role" r on r.id = ur."role_Id"
                            where ur."user_Id" = u.id and r.name = 'administrator')))`,
      [claim.workflow_Id, notify, isUnopened],
    ),
  )
  for (const { id, name } of users)
    await insertNotification(tx, {
      ...{ userId: id, tenantId: claim.tenant_Id, type: 'workflow', title: `The workflow ${name} failed` },
      message: (error ?? 'It failed').slice(0, 1000),
      data: { workflowId: claim.workflow_Id, executionId: claim.id },
    })
}
