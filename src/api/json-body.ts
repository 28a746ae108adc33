import { errors } from '../errors.ts'
import type { App } from '../http.ts'
import { isTooDeep } from '../json-depth.ts'

/**
 * JSON bodies: empty ones count as absent, because clients send `Content-Type: application/json` on requests without a
 * body; keys that would reach a prototype and more than 500 levels are refused with 400.
 */
export function acceptJsonBodies(app: App): void {
  const parse = app.getDefaultJsonParser('error', 'ignore')
  app.addContentTypeParser('application/json', { parseAs: 'string' }, (request, body, done) => {
    if (body === '') done(null, undefined)
    else if (isTooDeep(body as string)) done(errors.badBody('The request body is nested too deeply'), undefined)
    else parse(request, body as string, done)
  })
}
