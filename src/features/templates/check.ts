import { TemplateError } from '../../adapters/liquid.ts'
import { errors, type FieldProblem } from '../../errors.ts'
import type { Runtime } from '../../runtime.ts'
import type { Cell } from '../items/context.ts'
import { sampleVariables } from './samples.ts'

/** Characters. */
const longest = { subject: 250, body: 256 * 1024 }

/**
 * What a row of svc_Template must be before it is written, by whichever door. Subject and body are rendered with
 * sample data, by the same renderer as mails: whatever it refuses is refused here (quality I-07 to I-09).
 *
 * @throws {AppError} 400 that names the fields
 */
export async function checkTemplateCells(rt: Runtime, cells: readonly Cell[]): Promise<void> {
  const problems: FieldProblem[] = []
  for (const { field, value } of cells) {
    const message = typeof value === 'string' ? await problemOf(rt, field.name, value) : undefined
    if (message !== undefined) problems.push({ field: field.name, message, rule: 'isTemplate' })
  }
  if (problems.length > 0) throw errors.validation(problems)
}

async function problemOf(rt: Runtime, name: string, value: string): Promise<string | undefined> {
  if (name === 'type') return /^[a-z][\w-]{0,63}$/i.test(value) ? undefined : 'is not the name of a type'
  if (name !== 'subject' && name !== 'body') return undefined
  if (value.length > longest[name]) return `has more than ${longest[name]} characters`
  if (name === 'subject' && /[\p{Cc}\u2028\u2029]/u.test(value)) return 'is not one line'
  try {
    await rt.renderer.render({ template: { subject: '', body: '', [name]: value }, variables: sampleVariables(rt) })
    return undefined
  } catch (error) {
    if (error instanceof TemplateError) return error.message
    throw error
  }
}
