import { readDefinitions } from '../src/catalog/store.ts'
import { systemCollections } from '../src/catalog/system-definitions.ts'
import type { MigrationContext, MigrationResult } from '../src/events/direct-session.ts'

export const version = '0.1.12'
export const name = 'scope_of_executions'
export const description = 'What a program may do that has asked for an execution of a workflow in the name of a user.'
export const type = 'upgrade'

export async function up({ db, schemaManager }: MigrationContext): Promise<MigrationResult> {
  const before = (await readDefinitions(db)).find(({ collectionName }) => collectionName === changed)!
  const { caller_scope } = systemCollections.find(({ collectionName }) => collectionName === changed)!.schema.fields
  const fields = { ...before.schema.fields, caller_scope }
  await schemaManager.updateCollection(db, { ...before, schema: { ...before.schema, fields } } as typeof before)
  return { success: true }
}

const changed = 'svc_WorkflowExecution'
