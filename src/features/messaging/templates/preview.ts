import { TemplateError } from '../../../adapters/liquid.ts'
import { AppError } from '../../../errors.ts'
import { isUuid } from '../../../language/uuid.ts'
import type { TemplateReads } from './capabilities.ts'
import { withEmbeddedLogo } from './logo.ts'
import type { RenderedMail } from './render.ts'
import { templateById } from './templates.ts'
import { sampleVariables } from './variables.ts'

/**
 * A stored template as a mail to somebody: the settings of its tenant, sample data, and `data` in place of what it
 * names. For a browser: the logo is in the HTML.
 *
 * @throws {AppError} 404 for an unknown template; 400 when it cannot be rendered
 */
export async function previewTemplate(
  rt: TemplateReads,
  id: string,
  data: Readonly<Record<string, unknown>>,
): Promise<RenderedMail> {
  const stored = isUuid(id) ? await templateById(rt.db, id) : undefined
  if (stored === undefined) throw new AppError(404, 'Template not found')
  const variables = sampleVariables(rt, stored.type, stored.tenantId ?? undefined, data)
  const { subject, html, text } = await rt.renderer.render({ template: stored, variables }).catch(explain)
  return { subject, html: withEmbeddedLogo(html, rt.mailLogo), text }
}

function explain(error: unknown): never {
  if (error instanceof TemplateError)
    throw new AppError(400, 'The template cannot be rendered', { details: error.message })
  throw error
}
