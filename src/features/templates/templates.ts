import { TemplateError } from '../../adapters/liquid.ts'
import type { Reader } from '../../db/sql.ts'
import type { Runtime } from '../../runtime.ts'
import { builtInTemplates, type Template, type TemplateType } from './built-in.ts'
import { activeTemplate } from './queries.ts'
import type { Rendered } from './renderer.ts'
import { defaultTemplate, lookupNames } from './types.ts'

export type { TemplateType } from './built-in.ts'
export { oneLine } from './render.ts'

export type MailContents = {
  /** Of svc_Template; an extension may name one of its own. */
  readonly type: string
  readonly tenantId: string | null
  readonly variables: Readonly<Record<string, unknown>>
  /** The same without secrets: what the recorded subject is made from. */
  readonly recordedVariables: Readonly<Record<string, unknown>>
  /** Instead of the template's. */
  readonly subject: string | undefined
}

/**
 * A mail by the active template of its tenant, else of the installation, else by the built-in one. A stored template
 * that fails must not lose the mail: then it is the built-in one too, and the log says why.
 *
 * @throws {TemplateError} when the built-in template or the given subject fails, or there is none of the type
 */
export async function renderMail(rt: Runtime, contents: MailContents): Promise<Rendered> {
  const { type, variables, tenantId } = contents
  const stored = await activeTemplate(rt.db, lookupNames(type, variables), tenantId)
  const builtIn = builtInTemplate(type)
  const first = stored ?? builtIn
  if (first === undefined) throw new TemplateError(`there is no active template of the type ${type}`)
  if (stored === undefined || builtIn === undefined) return render(rt, first, contents)
  try {
    return await render(rt, stored, contents)
  } catch (error) {
    if (!(error instanceof TemplateError)) throw error
    const about = { templateId: stored.id, type: stored.type, tenantId, reason: error.message }
    rt.log.warn(about, 'a stored template failed: the built-in one is used instead')
    return render(rt, builtIn, contents)
  }
}

/** The subject before its template is known. */
export function subjectOf(type: string): string {
  return builtInTemplate(type)?.subject ?? type
}

/** Whether a mail of the type can be rendered at all, as things are now. */
export async function hasTemplate(db: Reader, type: string, tenantId: string | null): Promise<boolean> {
  return builtInTemplate(type) !== undefined || (await activeTemplate(db, [type], tenantId)) !== undefined
}

function builtInTemplate(type: string): Template | undefined {
  return Object.hasOwn(builtInTemplates, type) ? builtInTemplates[type as TemplateType] : defaultTemplate(type)
}

function render(rt: Runtime, template: Template, { variables, recordedVariables, subject }: MailContents) {
  const { subject: own, body } = template
  return rt.renderer.render({ template: { subject: subject ?? own, body }, variables, recordedVariables })
}
