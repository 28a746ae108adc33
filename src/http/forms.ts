import { AppError } from '../errors.ts'
import type { App } from './http.ts'

/** Lets the routes of a scope read forms (`application/x-www-form-urlencoded`) as objects of text. 400 for a repeated name. */
export function acceptForms(app: App): void {
  app.addContentTypeParser('application/x-www-form-urlencoded', { parseAs: 'string' }, (_request, body, done) => {
    const parameters = new URLSearchParams(String(body))
    const names = [...parameters.keys()]
    const repeated = names.find((name, index) => names.indexOf(name) !== index)
    if (repeated === undefined) done(null, Object.fromEntries(parameters))
    else done(new AppError(400, `The parameter '${repeated.slice(0, 40)}' is repeated`))
  })
}
