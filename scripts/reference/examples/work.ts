import { type Example, plain, sent } from './example.ts'

/** Examples of tasks, workflows and messages. */

const welcoming = {
  nodes: [
    { id: 'start', type: 'trigger', data: {} },
    {
      id: 'greet',
      type: 'notification',
      data: { userId: '{{user}}', title: 'Welcome', message: 'We are glad that you are here.' },
    },
  ],
  edges: [{ id: 'first', source: 'start', target: 'greet' }],
}

/** A day later. */
const reminding = {
  nodes: [...welcoming.nodes, { id: 'wait', type: 'delay', data: { delay: 86_400_000 } }],
  edges: [
    { id: 'first', source: 'start', target: 'wait' },
    { id: 'second', source: 'wait', target: 'greet' },
  ],
}

export const workflows: readonly Example[] = [
  sent('POST /workflows/validate', { flow_data: welcoming }),
  sent(
    'POST /workflows',
    { name: 'Welcome', status: 'active', trigger_type: 'manual', flow_data: welcoming },
    { status: 201, keep: { workflow: 'data.id' } },
  ),
  plain('GET /workflows', '/workflows?fields=id,name,status'),
  plain('GET /workflows/{id}', '/workflows/{{workflow}}'),
  sent('PATCH /workflows/{id}', { description: 'Greets who is new' }, { path: '/workflows/{{workflow}}' }),
  sent(
    'POST /workflows/{id}/test',
    { triggerData: { name: 'Ada' }, saveExecution: true },
    { path: '/workflows/{{workflow}}/test' },
  ),
  sent(
    'POST /workflows/{id}/nodes/{node}/execute',
    { inputData: { trigger: { name: 'Ada' } } },
    { path: '/workflows/{{workflow}}/nodes/greet/execute' },
  ),
  sent(
    'POST /workflows',
    { name: 'Remind', status: 'active', trigger_type: 'manual', flow_data: reminding },
    { status: 201, keep: { reminder: 'data.id' } },
  ),
  sent(
    'POST /workflows/{id}/execute',
    { name: 'Ada' },
    { path: '/workflows/{{reminder}}/execute', keep: { execution: 'execution.id' } },
  ),
  plain('GET /workflows/{id}/executions', '/workflows/{{reminder}}/executions?limit=10'),
  plain('GET /workflows/{id}/executions/{execution}', '/workflows/{{reminder}}/executions/{{execution}}'),
  plain('GET /workflows/{id}/executions/{execution}/logs', '/workflows/{{reminder}}/executions/{{execution}}/logs'),
  plain(
    'POST /workflows/{id}/executions/{execution}/cancel',
    '/workflows/{{reminder}}/executions/{{execution}}/cancel',
  ),
  plain('GET /workflows/{id}/stats', '/workflows/{{workflow}}/stats'),
  sent('POST /workflows/export', { workflowIds: ['{{workflow}}'] }),
  plain('GET /workflows/{id}/export', '/workflows/{{workflow}}/export'),
  sent('POST /workflows/import/preview', { workflows: [{ id: 'greeting', name: 'Greeting' }] }),
  sent('POST /workflows/import', { workflows: [{ id: 'greeting', name: 'Greeting' }] }),
  plain('DELETE /workflows/{id}', '/workflows/greeting'),
]

/** A workflow that answers at `/webhook/{path}`, by each method. */
export const triggers: readonly Example[] = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'].flatMap((method) => [
  sent(
    'POST /workflows',
    {
      name: `Orders by ${method}`,
      status: 'active',
      trigger_type: 'webhook',
      trigger_webhook_path: `orders-${method.toLowerCase()}`,
      trigger_webhook_method: method,
      flow_data: welcoming,
    },
    { status: 201 },
  ),
  {
    route: `${method} /webhook/{path}`,
    path: `/webhook/orders-${method.toLowerCase()}`,
    as: 'nobody',
    ...(method !== 'GET' && { body: { orderId: 42 } }),
  },
])

export const notifications: readonly Example[] = [
  sent('POST /notifications/send', {
    type: 'info',
    title: 'Your export is ready',
    message: 'You can download it for seven days.',
    userIds: ['{{user}}'],
  }),
  plain('GET /notifications', undefined, { as: 'ada', keep: { notification: 'data.0.id' } }),
  plain('GET /notifications/unread/count', undefined, { as: 'ada' }),
  sent('POST /notifications/mark-seen', { notificationIds: ['{{notification}}'] }, { as: 'ada' }),
  sent('DELETE /notifications', { notificationIds: ['{{notification}}'] }, { as: 'ada' }),
  sent('POST /notifications/cleanup', { days: 90 }),
]

export const webhooks: readonly Example[] = [
  sent(
    'POST /webhooks',
    {
      name: 'Sales to the warehouse',
      url: 'https://warehouse.example.com/hooks',
      collections: ['product'],
      actions: ['create', 'update'],
      filter: { state: 'on sale' },
      fields: ['id', 'name'],
    },
    { status: 201, keep: { webhook: 'data.id' } },
  ),
  plain('GET /webhooks'),
  plain('GET /webhooks/{id}', '/webhooks/{{webhook}}'),
  sent('PATCH /webhooks/{id}', { actions: ['create'] }, { path: '/webhooks/{{webhook}}' }),
  plain('POST /webhooks/{id}/rotate', '/webhooks/{{webhook}}/rotate'),
  plain('POST /webhooks/{id}/test', '/webhooks/{{webhook}}/test', { status: 202 }),
  plain('GET /webhooks/{id}/deliveries', '/webhooks/{{webhook}}/deliveries'),
  sent('PATCH /webhooks/{id}', { status: 'paused' }, { path: '/webhooks/{{webhook}}' }),
  plain('DELETE /webhooks/{id}', '/webhooks/{{webhook}}', { status: 204 }),
]

export const settings: readonly Example[] = [
  plain('GET /', undefined, { as: 'nobody' }),
  plain('POST /', undefined, { as: 'nobody' }),
  plain('GET /settings', undefined, { as: 'nobody' }),
  plain('GET /settings/keys'),
  sent('PATCH /settings', { project_name: 'Acme', app_url: 'http://localhost:3000' }),
  plain('POST /settings/reload'),
  sent(
    'POST /views',
    { name: 'On sale', page: 'data', collection: 'product', query: { filter: { state: 'on sale' }, sort: '-price' } },
    { status: 201, keep: { view: 'data.id' } },
  ),
  plain('GET /views'),
  sent('PATCH /views/{id}', { name: 'What is on sale' }, { path: '/views/{{view}}' }),
  plain('DELETE /views/{id}', '/views/{{view}}', { status: 204 }),
  plain('GET /templates/types', undefined, { as: 'nobody' }),
  plain('GET /templates/defaults'),
  plain('GET /templates/default/{type}', '/templates/default/invite'),
  plain('GET /settings/by-app-url', '/settings/by-app-url?app_url=http://localhost:3000', { as: 'nobody' }),
  plain('GET /items/{collection}', '/items/svc_Template?limit=1&fields=id', { keep: { template: 'data.0.id' } }),
  sent('POST /templates/{id}/preview', { data: { name: 'Ada' } }, { path: '/templates/{{template}}/preview' }),
]

export const operations: readonly Example[] = [
  plain('GET /health', undefined, { as: 'nobody' }),
  plain('GET /ready', undefined, { as: 'nobody' }),
  plain('GET /metrics'),
  plain('GET /ops/doctor'),
  plain('GET /ops/consumers'),
  plain('GET /ops/schedules'),
  plain('GET /ops/queues'),
  plain('GET /ops/jobs', '/ops/jobs?queue=mail&limit=10', { keep: { job: 'data.0.id' } }),
  plain('GET /ops/jobs/{id}', '/ops/jobs/{{job}}'),
  plain('POST /ops/jobs/{id}/retry', '/ops/jobs/{{job}}/retry'),
  plain('POST /ops/jobs/{id}/cancel', '/ops/jobs/{{job}}/cancel'),
  plain('POST /ops/queues/{queue}/redrive', '/ops/queues/mail/redrive'),
  plain('GET /realtime/status'),
  plain('GET /realtime/config'),
  plain('GET /realtime/collections'),
  sent(
    'POST /realtime/collections/{collection}/enable',
    { actions: ['insert', 'update'] },
    { path: '/realtime/collections/product/enable' },
  ),
  plain('GET /realtime/collections/{collection}', '/realtime/collections/product'),
  sent('PATCH /realtime/collections/{collection}', { actions: ['insert'] }, { path: '/realtime/collections/product' }),
  plain('POST /realtime/collections/{collection}/disable', '/realtime/collections/product/disable'),
  plain('POST /realtime/reload'),
  plain('POST /realtime/initialize'),
  plain('GET /migrations/status'),
  plain('GET /migrations'),
  plain('GET /migrations/pending'),
  plain('GET /migrations/check'),
]

export const documentation: readonly Example[] = [
  plain('GET /openapi', undefined, { as: 'nobody' }),
  plain('GET /docs', undefined, { as: 'nobody' }),
  plain('GET /docs/init.js', undefined, { as: 'nobody' }),
  plain('GET /docs/page.css', undefined, { as: 'nobody' }),
  plain('GET /docs/swagger-ui-bundle.js', undefined, { as: 'nobody' }),
  plain('GET /docs/swagger-ui.css', undefined, { as: 'nobody' }),
  plain('GET /client.js', undefined, { as: 'nobody' }),
  plain('GET /console', undefined, { as: 'nobody' }),
  plain('GET /console/{path}', '/console/data/product', { as: 'nobody' }),
  plain('GET /console/mail-view', undefined, { as: 'nobody' }),
  plain('GET /console/mail-view.js', undefined, { as: 'nobody' }),
  plain('GET /console/extension.js', undefined, { as: 'nobody' }),
  plain('GET /console/extension.css', undefined, { as: 'nobody' }),
  plain('GET /console/extensions.json'),
  plain('GET /_dev/mail', undefined, { as: 'nobody' }),
]

const listing = { jsonrpc: '2.0', id: 1, method: 'tools/list' }
const accept = { accept: 'application/json, text/event-stream' }

export const programs: readonly Example[] = [
  sent('POST /mcp', listing, { headers: accept }),
  sent(
    'POST /mcp/stateless',
    {
      jsonrpc: '2.0',
      id: 1,
      method: 'tools/call',
      params: { name: 'svc_list_items', arguments: { collection: 'product', limit: 2 } },
    },
    { headers: { accept: 'application/json' } },
  ),
  plain('GET /mcp', undefined, { status: 405 }),
  plain('DELETE /mcp'),
  plain('GET /mcp/info'),
  plain('GET /.well-known/oauth-authorization-server', undefined, { as: 'nobody' }),
  plain('GET /.well-known/openid-configuration', undefined, { as: 'nobody' }),
  plain('GET /.well-known/oauth-protected-resource', undefined, { as: 'nobody' }),
  plain('GET /.well-known/oauth-protected-resource/{path}', '/.well-known/oauth-protected-resource/mcp', {
    as: 'nobody',
  }),
  plain('GET /oauth/jwks', undefined, { as: 'nobody' }),
  sent(
    'POST /oauth/register',
    {
      client_name: 'Example app',
      redirect_uris: ['https://app.example.com/callback'],
      grant_types: ['authorization_code', 'refresh_token'],
    },
    { as: 'nobody', status: 201, keep: { client: 'client_id' } },
  ),
  plain(
    'GET /oauth/authorize',
    '/oauth/authorize?response_type=code&client_id={{client}}&redirect_uri=https://app.example.com/callback&scope=openid%20read&state=af0ifjsldkj&code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM&code_challenge_method=S256',
    { as: 'nobody' },
  ),
  plain('GET /oauth/page.css', undefined, { as: 'nobody' }),
  plain('GET /oauth/passkey.js', undefined, { as: 'nobody' }),
  plain('GET /oauth/userinfo', undefined, { as: 'ada' }),
  plain('POST /oauth/userinfo', undefined, { as: 'ada' }),
]
