/**
 * A request that stands on the page of its route, and is sent by a test in the order of the list, to a server that begins empty.
 * `{{name}}` stands for what an earlier answer gave.
 */
export type Example = {
  /** As the pages call it: `GET /items/{collection}`. */
  readonly route: string
  /** Path and query; that of the route with `{{id}}` for `{id}` unless given. */
  readonly path?: string
  readonly body?: unknown
  /** Parts of a form; a file is its name and its content. */
  readonly form?: Readonly<Record<string, string | readonly [name: string, content: string]>>
  /** A body that is neither. */
  readonly text?: string
  readonly headers?: Readonly<Record<string, string>>
  /** The user whose token goes along; by default an administrator's. */
  readonly as?: 'ada' | 'nobody' | 'leaving'
  /** 200 unless said otherwise. */
  readonly status?: number
  /**
   * The parts of the answer that later requests use: name to place, such as `data.0.id`, or a header as
   * `header:location`.
   */
  readonly keep?: Readonly<Record<string, string>>
}

/** A request without a body whose path says everything. */
export const plain = (route: string, path?: string, more: Partial<Example> = {}): Example => ({
  route,
  ...(path !== undefined && { path }),
  ...more,
})

/** A request with a JSON body. */
export const sent = (route: string, body: unknown, more: Partial<Example> = {}): Example => ({ route, body, ...more })
