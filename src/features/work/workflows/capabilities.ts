import type { TSchema } from 'typebox'
import type { CurrentAccess } from '../../../access/store.ts'
import type { IdSource } from '../../../adapters/ids.ts'
import type { Configuration } from '../../../config/config.ts'
import type { FileWrites } from '../../files/files/files.ts'
import type { CurrentSettings } from '../../settings/settings.ts'
import type { Scripts } from '../scripts/scripts.ts'

/** A node of an extension (`svc-node-*`): at least once, under the key of its execution, node and iteration. */
export type ExtensionNode = {
  readonly type: string
  /** The shape of its data. */
  readonly input: TSchema
  readonly handler: (
    input: Readonly<Record<string, unknown>>,
    context: { readonly idempotencyKey: string; readonly signal: AbortSignal },
  ) => unknown
}

type ScriptModule = Readonly<Record<string, (...args: never[]) => unknown>>

/** The definition that an execution runs. */
export type WorkflowDefinition = {
  readonly flow_data: unknown
  readonly variables: unknown
  readonly options: unknown
  readonly authority_Id: string | null
  readonly tenant_Id: string | null
}

/** The parts of workflows beyond the platform's own nodes. */
export type WorkflowParts = {
  /** Without it, nodes with scripts cannot be saved. */
  readonly scripts: Pick<Scripts, 'run' | 'check'> | undefined
  readonly nodes: Map<string, ExtensionNode>
  /** Functions of extensions (`svc-module-*`) that scripts call, by module. */
  readonly modules: Map<string, ScriptModule>
  /** Versions that were read. Forgotten with every change: one that was deleted and made again begins anew. */
  readonly definitions: Map<string, Promise<WorkflowDefinition | undefined>>
  /** Has this process know of workflows that were changed, where it is to run them within changes. */
  changed: () => Promise<void>
}

export type Workflows = { readonly workflows: WorkflowParts }

/** Why no script runs here; undefined where they do. */
export function scriptsRefusal({ config, workflows }: Configuration & Workflows): string | undefined {
  if (config.workflows.scripts === 'off') return 'No scripts run here: WORKFLOW_SCRIPTS is off'
  return workflows.scripts === undefined
    ? 'No scripts run here: this installation has nothing that runs them'
    : undefined
}

/** The purpose that values of svc_Secret are sealed for. */
export const sealedForWorkflows = { purpose: 'workflow secret', owner: 'svc_Secret' }

/** The capabilities that changes of this folder need. */
export type WorkflowWrites = FileWrites & CurrentAccess & CurrentSettings & IdSource & Workflows
