import { parseCron } from '../../../adapters/cron.ts'
import type { Catalog } from '../../../catalog/catalog.ts'
import { isObject } from '../../../query/guards.ts'
import type { WorkflowProblem } from './flow.ts'

/** The trigger and the options of a workflow: the columns of svc_Workflow beside its graph. */
export type Trigger = {
  readonly trigger_type: string | null
  readonly trigger_cron: string | null
  readonly trigger_webhook_path: string | null
  readonly trigger_webhook_method: string | null
  readonly trigger_hook_collection: string | null
  readonly trigger_hook_action: string | null
  readonly options: unknown
  readonly variables: unknown
  readonly allowed_roles: unknown
}

/** `options` of a workflow. */
type WorkflowOptions = {
  /** Of its schedule. */
  readonly timezone: string
  /** Of ticks that came while no worker ran: one run makes up for them, or none. */
  readonly missedTicks: 'once' | 'skip'
  /** Which executions of a before-hook are recorded. */
  readonly record: 'failed' | 'all'
  /** User ids that are notified when an execution fails. */
  readonly notify: readonly string[]
  /** Of a whole execution, waits included; 0 for any time. */
  readonly timeoutSeconds: number
  /** Of its webhook: the name of the secret that requests are signed with. */
  readonly webhookSecret: string | undefined
}

export function optionsOf(stored: unknown): WorkflowOptions {
  const given = isObject(stored) ? stored : {}
  return {
    timezone: typeof given.timezone === 'string' && given.timezone !== '' ? given.timezone : 'UTC',
    missedTicks: given.missedTicks === 'skip' ? 'skip' : 'once',
    record: given.record === 'all' ? 'all' : 'failed',
    notify: Array.isArray(given.notify) ? given.notify.filter((one) => typeof one === 'string') : [],
    timeoutSeconds: typeof given.timeoutSeconds === 'number' ? given.timeoutSeconds : 0,
    webhookSecret:
      typeof given.webhookSecret === 'string' && given.webhookSecret !== '' ? given.webhookSecret : undefined,
  }
}

/** Problems of the members of `options`; other members are the client's own. */
function optionProblems(stored: unknown): readonly string[] {
  if (stored == null) return []
  if (!isObject(stored)) return ['options must be an object']
  const { timezone, missedTicks, record, notify, timeoutSeconds, webhookSecret } = stored
  return [
    ...(timezone != null && timezone !== '' && !isTimezone(timezone) ? ['options.timezone is no time zone'] : []),
    ...(missedTicks != null && missedTicks !== 'once' && missedTicks !== 'skip'
      ? ['options.missedTicks must be once or skip']
      : []),
    ...(record != null && record !== 'all' && record !== 'failed' ? ['options.record must be failed or all'] : []),
    ...(notify != null &&
    !(Array.isArray(notify) && notify.length <= 20 && notify.every((one) => typeof one === 'string'))
      ? ['options.notify must be a list of at most 20 user ids']
      : []),
    ...(timeoutSeconds != null && !(typeof timeoutSeconds === 'number' && timeoutSeconds >= 0)
      ? ['options.timeoutSeconds must be a number of seconds']
      : []),
    ...(webhookSecret != null && typeof webhookSecret !== 'string'
      ? ['options.webhookSecret must be the name of a secret']
      : []),
  ]
}

function isTimezone(name: unknown): boolean {
  try {
    return typeof name === 'string' && new Intl.DateTimeFormat('en', { timeZone: name }) !== undefined
  } catch {
    return false
  }
}

const path = /^[A-Za-z0-9._~-]+(\/[A-Za-z0-9._~-]+)*$/

/** A webhook's path as it is compared: without slashes around it. */
export const webhookPath = (text: string): string => text.replace(/^\/+|\/+$/g, '')

/** The missing parts of an active workflow's trigger. */
export function triggerProblems(trigger: Trigger, catalog: Catalog): readonly WorkflowProblem[] {
  const { trigger_type, trigger_cron, trigger_webhook_path, trigger_hook_collection, trigger_hook_action } = trigger
  const problem = (message: string): WorkflowProblem => ({ code: 'trigger', message })
  const own = (): readonly string[] => {
    switch (trigger_type) {
      case 'schedule':
        return cronProblem(trigger_cron, optionsOf(trigger.options).timezone)
      case 'webhook':
        if (!trigger_webhook_path) return ['trigger_webhook_path is missing']
        return path.test(webhookPath(trigger_webhook_path)) ? [] : ['trigger_webhook_path is no path']
      case 'hook':
        return [
          ...(trigger_hook_collection ? [] : ['trigger_hook_collection is missing']),
          ...(trigger_hook_action ? [] : ['trigger_hook_action is missing']),
          ...(trigger_hook_collection?.startsWith('svc_')
            ? ['Hooks of system collections cannot trigger workflows']
            : []),
          ...(trigger_hook_collection && catalog.collections.get(trigger_hook_collection)?.logged === false
            ? [`Changes of ${trigger_hook_collection} are not recorded`]
            : []),
        ]
      default:
        return []
    }
  }
  return [...own(), ...optionProblems(trigger.options), ...variableProblems(trigger.variables)].map(problem)
}

const variableProblems = (variables: unknown) =>
  variables == null || isObject(variables) ? [] : ['variables must be an object']

function cronProblem(cron: string | null, timezone: string): readonly string[] {
  if (!cron) return ['trigger_cron is missing']
  try {
    return parseCron(cron, isTimezone(timezone) ? timezone : 'UTC').next(new Date()) === undefined
      ? ['trigger_cron never comes']
      : []
  } catch (error) {
    return [`trigger_cron: ${(error as Error).message}`]
  }
}
