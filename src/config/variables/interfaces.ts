import { boolean, list, mapped, oneOf, urlPath } from '../parsers.ts'
import { awaiting, group, variable } from '../variable.ts'

/* Descriptions of the API for programs. */

const mcpActions = ['read', 'create', 'update', 'delete'] as const
const mcpTools = mapped(list(oneOf('all', ...mcpActions)), (actions): readonly (typeof mcpActions)[number][] =>
  actions.includes('all') ? mcpActions : actions.filter((action) => action !== 'all'),
)

export const mcp = group(
  'MCP',
  awaiting('MCP', {
    enabled: variable('MCP_ENABLED', boolean, 'false', 'The MCP endpoint'),
    path: variable('MCP_PATH', urlPath, '/mcp', 'Its path'),
    actions: variable('MCP_ENABLED_ACTIONS', mcpTools, 'all', 'Groups of tools it offers'),
  }),
)

export const openapi = group(
  'OpenAPI',
  awaiting('OpenAPI', {
    enabled: variable('OPENAPI_ENABLED', boolean, 'true', 'Serve the generated OpenAPI document'),
    includeAuth: variable('OPENAPI_INCLUDE_AUTH', boolean, 'false', 'Describe the authentication endpoints in it'),
    includeSchema: variable('OPENAPI_INCLUDE_SCHEMA', boolean, 'false', 'Describe the schema endpoints'),
    includePermissions: variable('OPENAPI_INCLUDE_PERMISSIONS', boolean, 'false', 'Describe the permission endpoints'),
    includeSettings: variable('OPENAPI_INCLUDE_SETTINGS', boolean, 'false', 'Describe the settings endpoints'),
    includeNotifications: variable(
      'OPENAPI_INCLUDE_NOTIFICATIONS',
      boolean,
      'false',
      'Describe the notification endpoints',
    ),
    includeMultiTenant: variable('OPENAPI_INCLUDE_MULTI_TENANT', boolean, 'false', 'Describe the tenant endpoints'),
    includeUtils: variable('OPENAPI_INCLUDE_UTILS', boolean, 'false', 'Describe the utility endpoints'),
  }),
)
