import { parseCron } from '../../../adapters/cron.ts'
import type { Catalog } from '../../../catalog/catalog.ts'
import { nearName, withoutLastSlashes } from '../../../language/text.ts'
import { isObject } from '../../../query/guards.ts'
import {
  type Flow,
  type FlowNode,
  handleOf,
  isReturn,
  isStructure,
  readFlow,
  structures,
  topology,
  type WorkflowProblem,
} from './flow.ts'
import { type AskedList, isScript, isTemplate, type NodeData, nodeTypes } from './nodes.ts'
import { handlesOf } from './step.ts'

/** Every rule that an active workflow keeps, each problem with its node. Pure. */

/** The surroundings that decide beside the workflow itself. */
export type Surroundings = {
  readonly catalog: Catalog
  /** Why there are no scripts; undefined where they run. */
  readonly scriptsRefusal: string | undefined
  /** Types of extensions, and what each says of data. */
  readonly extensionNodes: ReadonlyMap<string, (data: unknown) => readonly string[]>
  /** Why a list cannot be asked for; undefined where it can. */
  readonly refusalOf: (list: AskedList) => string | undefined
}

type ValidationResult = {
  readonly valid: boolean
  readonly errors: readonly WorkflowProblem[]
  readonly warnings: readonly WorkflowProblem[]
}

/** Checks the stored parts: shape, sizes and known types. A draft needs no more. */
export function checkShape(
  flowData: unknown,
  around: Pick<Surroundings, 'extensionNodes'>,
): { flow: Flow; errors: WorkflowProblem[] } {
  const errors: WorkflowProblem[] = []
  const flow = readFlow(flowData, errors)
  for (const { id, type } of flow.nodes)
    if (!isKnown(type, around))
      errors.push({ code: 'unknown_type', message: `There is no node type ${type}`, nodeId: id })
  return { flow, errors }
}

/** All rules; `trigger` where they are about a whole workflow and not only its graph. */
export function validate(flowData: unknown, around: Surroundings, trigger?: Trigger): ValidationResult {
  const { flow, errors } = checkShape(flowData, around)
  const warnings: WorkflowProblem[] = []
  if (flow.nodes.length > 0 || errors.length === 0) checkGraph(flow, errors, warnings)
  const isBefore = trigger !== undefined && runsBefore(trigger)
  for (const node of flow.nodes) checkNode(node, { around, isBefore, errors, warnings })
  if (trigger !== undefined) errors.push(...triggerProblems(trigger, around.catalog))
  return { valid: errors.length === 0, errors, warnings }
}

/** Whether it runs within the change that triggers it. */
export const runsBefore = ({ trigger_type, trigger_hook_action }: Trigger): boolean =>
  trigger_type === 'hook' && trigger_hook_action != null && !trigger_hook_action.endsWith('.after')

const isKnown = (type: string, { extensionNodes }: Pick<Surroundings, 'extensionNodes'>): boolean =>
  Object.hasOwn(nodeTypes, type) || extensionNodes.has(type)

function checkGraph(flow: Flow, errors: WorkflowProblem[], warnings: WorkflowProblem[]): void {
  const { nodes, edges } = flow
  const note = (code: string, message: string, nodeId?: string) =>
    void errors.push({ code, message, ...(nodeId !== undefined && { nodeId }) })
  const triggers = nodes.filter(({ type }) => type === 'trigger')
  if (triggers.length !== 1) note('trigger', 'A workflow needs exactly one trigger node', triggers[1]?.id)
  const byId = new Map(nodes.map((node) => [node.id, node]))
  const outgoing = Map.groupBy(edges, ({ source }) => source)
  const incoming = new Set(edges.filter((edge) => !isReturn(byId, edge)).map(({ target }) => target))
  for (const { id } of triggers) {
    if ((outgoing.get(id) ?? []).length !== 1) note('trigger', 'The trigger must have exactly one outgoing edge', id)
    if (incoming.has(id)) note('trigger', 'No edge may lead into the trigger', id)
  }
  for (const { id, type } of nodes)
    if (type !== 'trigger' && !incoming.has(id)) note('no_incoming', 'The node has no incoming edge', id)
  const reached = reachable(flow, triggers[0]?.id)
  for (const { id, type } of nodes)
    if (type !== 'trigger' && incoming.has(id) && !reached.has(id))
      note('disconnected', 'The node cannot be reached from the trigger', id)
  for (const id of topology(flow).circle) note('cycle', 'The node is part of a circle, or after one', id)
  checkHandles(flow, byId, note)
  for (const { id, type } of nodes) {
    const into = isStructure(type) ? structures[type]!.into : []
    const taken = (outgoing.get(id) ?? []).map((edge) => handleOf(byId.get(id)!, edge))
    if (into.length > 0 && !into.some((handle) => taken.includes(handle)))
      warnings.push({ code: 'empty_body', message: `Nothing is connected to ${into.join(' or ')}`, nodeId: id })
  }
}

function checkHandles(
  { edges }: Flow,
  byId: ReadonlyMap<string, FlowNode>,
  note: (code: string, message: string, nodeId?: string) => void,
): void {
  for (const edge of edges) {
    const source = byId.get(edge.source)!
    if (isStructure(source.type) && !handlesOf(source.type).includes(handleOf(source, edge)))
      note(
        'handle',
        `The node has no handle ${edge.sourceHandle}; it has ${handlesOf(source.type).join(', ')}`,
        source.id,
      )
    const { targetHandle = '' } = edge
    if (/^(condition|loop|try)-end$/.test(targetHandle) && !isReturn(byId, edge))
      note('handle', `The node has no handle ${targetHandle}`, edge.target)
  }
}

function reachable({ edges }: Flow, from: string | undefined): ReadonlySet<string> {
  const outgoing = Map.groupBy(edges, ({ source }) => source)
  const reached = new Set(from === undefined ? [] : [from])
  for (const id of reached) for (const { target } of outgoing.get(id) ?? []) reached.add(target)
  return reached
}

type Checking = {
  readonly around: Surroundings
  readonly isBefore: boolean
  readonly errors: WorkflowProblem[]
  readonly warnings: WorkflowProblem[]
}

function checkNode({ id, type, data }: FlowNode, { around, isBefore, errors, warnings }: Checking): void {
  const note = (code: string, message: string) => void errors.push({ code, message, nodeId: id })
  const known = Object.hasOwn(nodeTypes, type) ? nodeTypes[type]! : undefined
  if (known === undefined) {
    for (const message of around.extensionNodes.get(type)?.(data) ?? []) note('config', message)
    if (isBefore && around.extensionNodes.has(type))
      note('before_hook', `${type} cannot be part of a change that is still being made: use the .after action`)
    return
  }
  known.check(data, (message) => note('config', message))
  const reason = isBefore ? known.notBefore?.(data) : undefined
  if (reason !== undefined) note('before_hook', `${type}: ${reason}`)
  if (isScript(type, data) && around.scriptsRefusal !== undefined) note('scripts', around.scriptsRefusal)
  warnings.push(...unknownMembers(data, known.members).map((doubt) => ({ ...doubt, nodeId: id })))
  warnings.push(...(known.doubts?.(data) ?? []).map((doubt) => ({ ...doubt, nodeId: id })))
  const { collection } = data
  if (
    typeof collection === 'string' &&
    collection !== '' &&
    !isTemplate(collection) &&
    !around.catalog.collections.has(collection)
  ) {
    warnings.push({ code: 'unknown_collection', message: `There is no collection ${collection}`, nodeId: id })
    return
  }
  const refusal = refusalIn(known.list?.(data), data, around)
  if (refusal !== undefined) warnings.push({ code: 'query', message: refusal, nodeId: id })
}

/** Of a node with other rights than those of its author nothing can be said. A collection that templates name is not known yet. */
function refusalIn(list: AskedList | undefined, data: NodeData, { refusalOf }: Surroundings): string | undefined {
  if (list === undefined || isTemplate(list.collection)) return undefined
  if (data.executeAsAnonymous === true || data.bypassPermissions === true) return undefined
  return refusalOf({ ...list, query: withoutTemplates(list.query) as AskedList['query'] })
}

/** The query without what is not known yet: of a condition on a field the name of the field stays. */
function withoutTemplates(value: unknown): unknown {
  if (isTemplate(value)) return undefined
  if (value === null || typeof value !== 'object') return value
  if (Array.isArray(value)) {
    const known = value.map(withoutTemplates)
    // A value may mean something by its place among others.
    return known.includes(undefined) ? undefined : known
  }
  return Object.fromEntries(
    Object.entries(value)
      .map(([name, one]) => [name, withoutTemplates(one)] as const)
      .filter(([, one]) => one !== undefined),
  )
}

/** A warning and no error: editors keep members of their own. */
function unknownMembers(data: NodeData, known: readonly string[]) {
  return Object.keys(data)
    .filter((name) => name !== 'label' && !known.includes(name))
    .map((name) => {
      const meant = nearName(name, known)
      const hint = meant === undefined ? '' : `; did you mean ${meant}?`
      return { code: 'unknown_member', message: `The member ${name} means nothing here${hint}` }
    })
}

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

/**
 * The role ids of `allowed_roles`; undefined where it restricts nobody. A value that was stored past the checks and is no list
 * must not open the workflow: it names no role.
 */
export function rolesNamed(stored: unknown): readonly string[] | undefined {
  if (stored == null || (Array.isArray(stored) && stored.length === 0)) return undefined
  return Array.isArray(stored) ? stored.filter(isRoleId) : []
}

const isRoleId = (one: unknown): one is string => typeof one === 'string' && one !== ''

/** JSON text of a list is none: a column of JSON keeps it as text. */
export function roleProblems(stored: unknown): readonly WorkflowProblem[] {
  const isList = stored == null || (Array.isArray(stored) && stored.every(isRoleId))
  return isList ? [] : [{ code: 'allowed_roles', message: 'allowed_roles must be a list of role ids' }]
}

const optionNames = [
  'timezone',
  'missedTicks',
  'record',
  'notify',
  'timeoutSeconds',
  'webhookSecret',
] as const satisfies (keyof WorkflowOptions)[]

const lettersOf = (name: string): string => name.toLowerCase().replaceAll(/[^a-z]/g, '')

/** A secret by another spelling would leave its webhook open to everybody, and nobody would notice. */
const misspeltOptions = (given: Readonly<Record<string, unknown>>): readonly string[] =>
  Object.keys(given).flatMap((name) => {
    const meant = optionNames.find((option) => option !== name && lettersOf(option) === lettersOf(name))
    return meant === undefined ? [] : [`options.${name} means nothing: write options.${meant}`]
  })

/** Problems of the members of `options`; other members are the client's own. */
function optionProblems(stored: unknown): readonly string[] {
  if (stored == null) return []
  if (!isObject(stored)) return ['options must be an object']
  const { timezone, missedTicks, record, notify, timeoutSeconds, webhookSecret } = stored
  return [
    ...misspeltOptions(stored),
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
export const webhookPath = (text: string): string => withoutLastSlashes(text.replace(/^\/+/, ''))

/** The missing parts of an active workflow's trigger. */
function triggerProblems(trigger: Trigger, catalog: Catalog): readonly WorkflowProblem[] {
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
  return [
    ...[...own(), ...optionProblems(trigger.options), ...variableProblems(trigger.variables)].map(problem),
    ...roleProblems(trigger.allowed_roles),
  ]
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
